#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "api/server.h"
#include "commands/commands.h"
#include "queue/queue.h"
#include "queue/tube_refs.h"
#include "runtime/connection.h"
#include "server/remote_state.h"
#include "server/replies.h"
#include "server/trace.h"
#include "workers/barrier.h"
#include "workers/claims.h"
#include "workers/remote_commands.h"

enum { MIGRATION_BYTES_MAX = 48 * 1024 }; /* it travels in one message */

/* --- upcalls ---------------------------------------------------------------------------------------------- */

int bs_core_next_upcall(bs_core *core, bs_upcall *upcall)
{
    /* A command at another worker must find the session that sends it counted. */
    bs_counts_send(&core->server);
    return bs_upcalls_take(&core->server.upcalls, upcall);
}

const char *bs_core_tubes(bs_core *core, size_t *length)
{
    bs_bytes *text = &core->server.upcalls.taken.bytes;
    char number[24];
    bs_bytes_free(text);
    for (const bs_tube *tube = core->server.queue.tubes.first; tube; tube = tube->next) {
        int digits = snprintf(number, sizeof number, "%" PRIu64 " ", tube->number);
        if (bs_bytes_append(text, number, (size_t)digits) != 0 ||
            bs_bytes_append(text, tube->name, tube->name_length) != 0 || bs_bytes_append(text, "\n", 1) != 0)
            return NULL;
    }
    *length = bs_bytes_length(text);
    return *length ? bs_bytes_data(text) : "";
}

/* --- sessions at home ------------------------------------------------------------------------------------- */

void bs_core_relay_output(bs_core *core, uint64_t id, uint32_t shard, const char *bytes, size_t length, bs_now now)
{
    bs_session *session = bs_core_begin_call(core, id, now);
    if (!session || session->proxy)
        return;
    bs_relay_output(&core->server, session, shard, bytes, length);
    bs_core_resume_sessions(core, now);
}

void bs_core_expect(bs_core *core, uint64_t id, uint32_t shard, uint32_t replies)
{
    bs_session *session = bs_core_find(core, id);
    bs_remote *remote = session ? bs_remote_of(&core->server, session) : NULL;
    if (!remote)
        return;
    session->finding_job = false;
    remote->outstanding = replies;
    remote->outstanding_shard = shard;
}

void bs_core_holds_nothing(bs_core *core, uint64_t id, uint32_t shard)
{
    const bs_session *session = bs_core_find(core, id);
    if (session && session->remote)
        bs_shard_set_remove(session->remote->holding_shards, shard);
}

int bs_core_holds(const bs_core *core, uint64_t id)
{
    const bs_session *session = bs_core_find(core, id);
    return session ? (int)session->reserved.count : 0;
}

void bs_core_send_watches(bs_core *core, uint64_t id, uint32_t shard)
{
    bs_session *session = bs_core_find(core, id);
    if (session)
        bs_remote_send_watches(&core->server, session, shard);
}

/* --- claims ----------------------------------------------------------------------------------------------- */

int bs_core_head(bs_core *core, uint64_t id, int decided, bs_head *head, bs_now now)
{
    bs_session *session = bs_core_find(core, id);
    if (!session)
        return -ENOENT;
    if (!decided && bs_claims_undecided(&core->server, session))
        return -EAGAIN;
    const bs_job *best = bs_queue_best_job(session);
    *head = (bs_head){
        .ready = best != NULL,
        .any = bs_queue_any_ready(session),
        .soon = bs_queue_deadline_soon(session, now),
        .holds = (int)session->reserved.count,
        .pri = best ? best->pri : 0,
        .id = best ? best->id : 0,
    };
    return 0;
}

/* A session at home with its reply is not parked any more. */
static int answered(bs_core *core, bs_session *session, int result, bs_now now)
{
    if (result == 1 && session->parked) {
        session->parked = false;
        bs_session_list_add(&core->server.runnable, session);
    }
    bs_core_resume_sessions(core, now);
    return result;
}

int bs_core_claim(bs_core *core, uint64_t id, uint32_t pri, int decided, bs_now now)
{
    bs_session *session = bs_core_begin_call(core, id, now);
    if (!session)
        return -ENOENT;
    if (!decided && bs_claims_undecided(&core->server, session))
        return -EAGAIN;
    const bs_job *best = bs_queue_best_job(session);
    if (!best || best->pri > pri)
        return 0;
    bs_reply_job(&core->server, session, "RESERVED", bs_queue_reserve(&core->server.queue, session, now));
    if (!session->proxy)
        bs_latency_replied(&core->server.latency, session, session->verb, session->since);
    return answered(core, session, 1, now);
}

int bs_core_claim_wait(bs_core *core, uint64_t id, uint64_t token, int64_t until, bs_now now)
{
    bs_session *session = bs_core_find(core, id);
    if (!session)
        return -ENOENT;
    core->round_due = true;
    return bs_claim_wait(&core->server, session, token, until, now);
}

int bs_core_claim_take(bs_core *core, uint64_t id, uint64_t token, bs_now now)
{
    bs_session *session = bs_core_begin_call(core, id, now);
    return session ? answered(core, session, bs_claim_take(&core->server, session, token, now), now) : -ENOENT;
}

int bs_core_claim_cancel(bs_core *core, uint64_t id, uint64_t token, bs_now now)
{
    bs_session *session = bs_core_begin_call(core, id, now);
    if (!session)
        return -ENOENT;
    int result = bs_claim_cancel(&core->server, session, token, now);
    bs_core_resume_sessions(core, now); /* a job that was put back may have been given to another session */
    return result;
}

int bs_core_reserve(bs_core *core, uint64_t id, int64_t until, int decided, bs_now now)
{
    bs_session *session = bs_core_begin_call(core, id, now);
    if (!session)
        return -ENOENT;
    /* A session that will wait gets a job that is put back in its turn. */
    const bool no_wait = until <= now.mono || bs_queue_any_ready(session);
    const bool undecided = !decided && no_wait && bs_claims_undecided(&core->server, session);
    if (!undecided)
        bs_execute_reserve(&core->server, session, until, now);
    bs_core_resume_sessions(core, now);
    return undecided ? -EAGAIN : 0;
}

/* --- moving ----------------------------------------------------------------------------------------------- */

static int pack(const bs_session *session, bs_bytes *state)
{
    int error = bs_bytes_append(state, session->use->name, session->use->name_length);
    for (uint32_t i = 0; i < session->watch_count && !error; i++) {
        const bs_tube *tube = session->watches[i].tube;
        error = bs_bytes_append(state, "\n", 1) || bs_bytes_append(state, tube->name, tube->name_length);
    }
    return error || bs_bytes_append(state, "\n\n", 2) ||
                   bs_bytes_append(state, bs_bytes_data(&session->in), bs_bytes_length(&session->in))
               ? -ENOMEM
               : 0;
}

/* No command, reply or job may be under way. */
static bool can_move(const bs_session *session)
{
    return session->fd >= 0 && session->remote && session->remote->moving && session->input == BS_INPUT_LINE &&
           session->reserved.count == 0 && bs_bytes_length(&session->out) == 0 && !session->waiting &&
           !session->broken && !session->closing && !bs_remote_awaits_replies(session);
}

int bs_core_detach(bs_core *core, uint64_t id, uint32_t shard, bs_migration *migration, bs_now now)
{
    bs_session *session = bs_core_find(core, id);
    if (session && session->may_leave > 0 && !core->fatal)
        bs_connection_send(core, session, now); /* the reply that starts the migration has not left yet */
    session = bs_core_find(core, id);
    if (!session)
        return -ENOENT;
    bs_bytes *state = &core->server.upcalls.taken.bytes;
    bs_bytes_free(state);
    if (!can_move(session) || core->server.peers[shard] == BS_PEER_DOWN || pack(session, state) != 0 ||
        bs_bytes_length(state) > MIGRATION_BYTES_MAX ||
        epoll_ctl(core->epoll_fd, EPOLL_CTL_DEL, session->fd, NULL) != 0) {
        bs_core_cancel_migration(core, id);
        return -EBUSY;
    }
    *migration = (bs_migration){.fd = session->fd,
                            .producer = session->producer,
                            .worker = session->worker,
                            .eof = session->eof,
                            .shard = core->server.queue.shard,
                            .state = bs_bytes_data(state),
                            .length = bs_bytes_length(state)};
    bs_latency_begin(&core->server.latency, now.mono);
    if (session->trace) {
        migration->logged = session->trace->logged;
        migration->connection = session->trace->connection;
        migration->commands = session->trace->commands;
        migration->opened = session->trace->opened;
        bs_trace_free(session->trace);
        session->trace = NULL; /* the connection goes on */
    }
    session->fd = -1;
    session->moved = true;
    bs_barrier_migrated_out(&core->server, session, shard);
    bs_core_end_session(core, session, now);
    return 0;
}

void bs_core_cancel_migration(bs_core *core, uint64_t id)
{
    bs_session *session = bs_core_find(core, id);
    if (!session || !session->remote)
        return;
    bs_relay_delay_migration(session);
    session->parked = false;
    bs_session_list_add(&core->server.runnable, session);
    core->round_due = true;
}

/* Takes one line; NULL at the empty one. */
static const char *next_line(const char **at, const char *end, size_t *length)
{
    const char *line = *at;
    const char *lf = memchr(line, '\n', (size_t)(end - line));
    *length = lf ? (size_t)(lf - line) : 0;
    *at = lf ? lf + 1 : end;
    return *length ? line : NULL;
}

static int unpack(bs_core *core, bs_session *session, const char **at, const char *end)
{
    bs_queue *queue = &core->server.queue;
    size_t length;
    const char *name = next_line(at, end, &length);
    int error = name ? bs_refs_use(queue, session, name, length) : -EINVAL;
    while (!error && (name = next_line(at, end, &length)))
        error = bs_refs_watch(queue, session, name, length);
    return error || bs_bytes_append(&session->in, *at, (size_t)(end - *at)) != 0 ? -ENOMEM : 0;
}

/* The trace of the connection continues, if it had one. */
static void trace(bs_core *core, bs_session *session, const bs_migration *migration, bs_now now)
{
    bs_connection_trace(core, session, now);
    if (!session->trace)
        return;
    if (migration->connection) {
        session->trace->logged = migration->logged;
        session->trace->connection = migration->connection;
        session->trace->commands = migration->commands;
        session->trace->opened = migration->opened;
    }
    bs_trace_moved(&core->server, session, migration->shard);
}

int bs_core_attach(bs_core *core, const bs_migration *migration, bs_now now)
{
    bs_server *server = &core->server;
    const char *at = migration->state;
    const char *end = at + migration->length;
    bs_barrier_migrated_in(server, migration->shard);
    bs_session *session = bs_connection_open(core, migration->fd, true);
    if (!session)
        return -ENOMEM;
    if (bs_trace_enabled(server))
        trace(core, session, migration, now);
    if (unpack(core, session, &at, end) != 0) {
        bs_core_end_session(core, session, now);
        return -ENOMEM;
    }
    session->producer = migration->producer;
    session->worker = migration->worker;
    server->queue.counters->producers += session->producer;
    server->queue.counters->workers += session->worker;
    session->eof = migration->eof;
    session->readable = true; /* an edge may be lost */
    bs_session_list_add(&server->runnable, session);
    core->round_due = true;
    return 0;
}
