#include "workers/remote_moves.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "binlog_files/entry.h"
#include "jobs/expiry.h"
#include "queue/job_state.h"
#include "queue/job_waits.h"
#include "queue/queue.h"
#include "queue/throttle.h"
#include "queue/tube_refs.h"
#include "server/replies.h"
#include "workers/remote_commands.h"

#define INTERNAL_ERROR "INTERNAL_ERROR\r\n"
#define OUT_OF_MEMORY "OUT_OF_MEMORY\r\n"

struct bs_remote_move {
    bs_remote_move *next;
    uint64_t session; /* that gets the reply */
    uint64_t job;
    uint64_t copy;    /* its id */
    const char *error; /* the reply; NULL: the copy is there */
    bool answered;
    /* The job before: */
    uint8_t state;
    bool truncated;   /* about to be deleted (Q6) */
    uint32_t file;    /* of its full entry */
    int64_t at;
    uint64_t holder;  /* the session that had reserved it; 0: none */
};

/* --- the job meanwhile ------------------------------------------------------------------------------------ */

/* The entry of a job that compaction has written while it was held has another state. */
static void write_state(bs_queue *queue, const bs_remote_move *move, bs_job *job, bs_now now)
{
    if (queue->binlog && job->file != move->file && bs_binlog_reserve_space(queue->binlog, now))
        bs_binlog_update(queue->binlog, job, 0, now);
}

static void make_free(bs_queue *queue, const bs_remote_move *move, bs_job *job, bs_now now)
{
    bs_job_unlink(queue, job);
    job->state = move->state & 7U;
    job->at = move->at;
    if (move->state == BS_READY) {
        bs_job_make_ready(queue, job, now);
        if (job->state == BS_READY)
            job->at = move->at;
    } else if (move->state == BS_DELAYED) {
        write_state(queue, move, job, now);
        bs_job_make_delayed(queue, job);
    } else {
        write_state(queue, move, job, now);
        bs_job_make_buried(queue, job);
        bs_job_waits_notify(queue, job->id, BS_SERVED_BURIED);
    }
    if ((job->state == BS_READY || job->state == BS_DELAYED) && bs_expiry_reached(job, now.wall))
        bs_job_set_expiry(queue, job, now); /* its time may have passed meanwhile */
}

static void restore(bs_server *server, const bs_remote_move *move, bs_job *job, bs_now now)
{
    bs_queue *queue = &server->queue;
    bs_tube *tube = job->tube;
    bs_session *holder = bs_sessions_find(&queue->sessions, move->holder);
    if (holder) {
        bs_job_hold(queue, holder, job, move->at, now);
    } else if (move->state == BS_RESERVED) {
        bs_queue_return(queue, job, now);
    } else if (!move->truncated || bs_queue_remove(queue, job, BS_ENDED_TRUNCATED, now) != 0) {
        make_free(queue, move, job, now);
        bs_serve_throttled(queue, tube, now);
    }
}

/* --- begin ------------------------------------------------------------------------------------------------ */

static bs_session *mover_to(bs_server *server, uint32_t shard)
{
    bs_remote_moves *moves = &server->moves[shard];
    bs_session *mover = bs_sessions_find(&server->queue.sessions, moves->mover);
    if (mover)
        return mover;
    bs_remote_moves_fail(server, shard); /* no answer can come any more */
    mover = bs_refs_open_mover(&server->queue);
    if (!mover)
        return NULL;
    mover->verb = BS_UNTIMED;
    moves->mover = mover->id;
    return mover;
}

/* Sends a put of a copy and returns its id; 0 without memory. */
static uint64_t send_copy(bs_server *server, bs_session *mover, const bs_job *job, const bs_job_target *to)
{
    const bs_moved_job of = {job->created_at, job->reserves, job->timeouts, job->releases, job->buries, job->kicks};
    char text[BS_MOVED_TEXT_MAX];
    bs_job *copy = bs_queue_copy_job(&server->queue, job, to);
    if (!copy) {
        bs_refs_free_unused(&server->queue, to->tube);
        return 0;
    }
    const uint64_t id = copy->id;
    mover->put_options = bs_put_options_new_moved(text, bs_put_options_write_moved(text, &of));
    const bool sent = mover->put_options && bs_remote_put(server, mover, copy) == 0;
    if (!sent)
        bs_queue_drop_job(&server->queue, copy);
    bs_session_drop_put_options(mover);
    return sent ? id : 0;
}

bool bs_remote_move_stalls(bs_server *server, bs_session *session, const bs_command *command)
{
    const bs_queue *queue = &server->queue;
    const uint32_t shard = bs_shard_of(command->name, command->name_length, queue->workers, queue->colocate);
    if (shard == queue->shard || server->peers[shard] != BS_PEER_BUSY)
        return false;
    session->stalled = true;
    return true;
}

void bs_remote_move_begin(bs_server *server, bs_session *session, bs_job *job, const bs_job_target *to, bs_now now)
{
    const uint32_t shard = to->tube->shard;
    if (server->peers[shard] == BS_PEER_DOWN) {
        bs_refs_free_unused(&server->queue, to->tube);
        bs_reply(server, session, INTERNAL_ERROR, BS_HOLD_NONE);
        return;
    }
    bs_session *mover = mover_to(server, shard);
    bs_remote_move *move = mover ? calloc(1, sizeof *move) : NULL;
    if (!move)
        bs_refs_free_unused(&server->queue, to->tube);
    else
        move->copy = send_copy(server, mover, job, to);
    if (!move || !move->copy) {
        free(move);
        bs_reply(server, session, OUT_OF_MEMORY, BS_HOLD_NONE);
        return;
    }
    move->session = session->id;
    move->job = job->id;
    move->state = job->state;
    move->truncated = job->state != BS_RESERVED && job->truncates != job->tube->ready.truncates;
    move->file = job->file;
    move->holder = job->state == BS_RESERVED ? session->id : 0;
    if (bs_binlog_reserve_age(server->queue.binlog, job, now))
        bs_binlog_append_deferred(server->queue.binlog, job, 0, now); /* its end has no space for it */
    move->at = job->at;
    bs_job_hold(&server->queue, mover, job, now.mono + BS_MOVE_NS, now);
    bs_remote_moves *moves = &server->moves[shard];
    *(moves->last ? &moves->last->next : &moves->first) = move;
    moves->last = move;
    session->parked = true;
}

/* --- end -------------------------------------------------------------------------------------------------- */

static void answer(bs_server *server, bs_remote_move *move, const char *error)
{
    move->answered = true;
    move->error = error;
    server->answered_moves++;
}

void bs_remote_move_answered(bs_server *server, uint32_t shard, const char *reply)
{
    bs_remote_move *move = server->moves[shard].first;
    while (move && move->answered)
        move = move->next;
    if (move)
        answer(server, move, strncmp(reply, "INSERTED ", 9) == 0 ? NULL : OUT_OF_MEMORY);
}

void bs_remote_moves_fail(bs_server *server, uint32_t shard)
{
    for (bs_remote_move *move = server->moves[shard].first; move; move = move->next)
        if (!move->answered)
            answer(server, move, INTERNAL_ERROR);
}

void bs_remote_moves_restart(bs_server *server, uint32_t shard)
{
    const bs_session *mover = bs_sessions_find(&server->queue.sessions, server->moves[shard].mover);
    if (mover && mover->remote)
        bs_remote_forget_outstanding(server, mover, shard);
    bs_remote_moves_fail(server, shard);
}

static void reply(bs_server *server, uint64_t id, uint64_t copy, const char *error)
{
    bs_session *session = bs_sessions_find(&server->queue.sessions, id);
    if (!session)
        return;
    const bs_hold written = bs_binlog_hold(server->queue.binlog);
    if (error)
        bs_reply(server, session, error, written);
    else
        bs_reply_number(server, session, "MOVED", copy, written);
    session->parked = false;
    if (!session->proxy)
        bs_latency_replied(&server->latency, session, session->verb, session->since);
    bs_session_list_add(&server->runnable, session);
}

static void end(bs_server *server, uint32_t shard, bs_remote_move *move, bs_now now)
{
    bs_queue *queue = &server->queue;
    const bs_session *mover = bs_sessions_find(&queue->sessions, server->moves[shard].mover);
    bs_job *job = bs_job_table_find(&queue->jobs, move->job);
    const bool held = job && job->state == BS_RESERVED && bs_job_holder(queue, job) == mover;
    if (!held)
        move->error = INTERNAL_ERROR;
    else if (!move->error && bs_queue_end_moved(queue, job, BS_ENDED_MOVED, now) != 0)
        move->error = INTERNAL_ERROR;
    if (held && move->error)
        restore(server, move, job, now);
    reply(server, move->session, move->copy, move->error);
}

void bs_moves_run(bs_server *server, bs_now now)
{
    bs_ended_move ended;
    while (bs_queue_end_next_move(&server->queue, &ended, now))
        reply(server, ended.session, ended.copy, ended.failed ? INTERNAL_ERROR : NULL);
    for (uint32_t shard = 0; shard < server->queue.workers && server->answered_moves > 0; shard++) {
        bs_remote_moves *moves = &server->moves[shard];
        while (moves->first && moves->first->answered) {
            bs_remote_move *move = moves->first;
            moves->first = move->next;
            if (!moves->first)
                moves->last = NULL;
            server->answered_moves--;
            end(server, shard, move, now);
            free(move);
        }
    }
}

void bs_remote_moves_free(bs_server *server)
{
    for (uint32_t shard = 0; shard < server->queue.workers; shard++) {
        while (server->moves[shard].first) {
            bs_remote_move *next = server->moves[shard].first->next;
            free(server->moves[shard].first);
            server->moves[shard].first = next;
        }
    }
}
