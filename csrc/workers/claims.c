#include "workers/claims.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "jobs/expiry.h"
#include "queue/job_state.h"
#include "queue/published_heads.h"
#include "queue/queue.h"
#include "queue/throttle.h"
#include "server/remote_state.h"
#include "server/replies.h"
#include "server/reserves.h"

/* --- pending claims --------------------------------------------------------------------------------------- */

static void add(bs_pending_claim_list *list, bs_pending_claim item)
{
    list->items = bs_must_grow_u32(list->items, list->count, &list->capacity, sizeof *list->items);
    list->items[list->count++] = item;
}

static void remove_at(bs_pending_claim_list *list, uint32_t index)
{
    list->count--;
    memmove(&list->items[index], &list->items[index + 1], (list->count - index) * sizeof *list->items);
}

static void add_claim(bs_server *server, bs_session *session, const bs_job *job)
{
    const int64_t now_mono = job->at - (int64_t)job->ttr * BS_SECOND;
    bs_pending_claims *pending = &server->pending_claims;
    session->remote->claimed_tube = job->tube;
    session->remote->claim_number = ++pending->last;
    add(&pending->claims,
        (bs_pending_claim){.number = pending->last, .session = session->id, .at = now_mono + BS_CLAIM_LIMIT_NS});
    job->tube->pending_claims++;
    bs_head_changed(&server->queue, job->tube);
}

static void release(bs_server *server, const bs_pending_claim *waiter)
{
    bs_session *session = bs_sessions_find(&server->queue.sessions, waiter->session);
    if (!session)
        return;
    if (waiter->request) {
        bs_session_list_add(&server->reserving, session);
    } else if (session->stalled) {
        session->stalled = false;
        session->claims_decided = true;
        bs_session_list_add(&server->runnable, session);
    }
}

/* The claim is taken or put back: returns its tube. Commands that waited continue; the caller serves the tube's
 * waiters. */
static bs_tube *remove_claim(bs_server *server, bs_session *session)
{
    bs_pending_claims *pending = &server->pending_claims;
    bs_tube *tube = session->remote->claimed_tube;
    tube->pending_claims--;
    bs_head_changed(&server->queue, tube);
    session->remote->claimed_tube = NULL;
    for (uint32_t i = 0; i < pending->claims.count; i++) {
        if (pending->claims.items[i].number == session->remote->claim_number) {
            remove_at(&pending->claims, i);
            break;
        }
    }
    const uint64_t oldest = pending->claims.count ? pending->claims.items[0].number : UINT64_MAX;
    while (pending->waiters.count && pending->waiters.items[0].number < oldest) {
        const bs_pending_claim waiter = pending->waiters.items[0];
        remove_at(&pending->waiters, 0);
        release(server, &waiter);
    }
    return tube;
}

int64_t bs_pending_claims_next(const bs_server *server)
{
    return server->pending_claims.claims.count ? server->pending_claims.claims.items[0].at : INT64_MAX;
}

/* Returns the session whose claim is due, or NULL. */
static bs_session *due_claim(const bs_server *server, bs_now now)
{
    if (bs_pending_claims_next(server) > now.mono)
        return NULL;
    return bs_sessions_find(&server->queue.sessions, server->pending_claims.claims.items[0].session);
}

/* --- commands that wait for the decision ------------------------------------------------------------------ */

static bool watches_claims(const bs_session *session)
{
    for (uint32_t i = 0; i < session->watch_count; i++)
        if (session->watches[i].tube->pending_claims)
            return true;
    return false;
}

static bool tube_is_undecided(const bs_server *server, const bs_command *command)
{
    const bs_tube *tube = bs_tubes_find(&server->queue.tubes, command->name, command->name_length);
    return tube && tube->pending_claims;
}

/* Repeated waits end, because a job that is put back is the next to leave its tube. */
static bool job_is_undecided(const bs_server *server, const bs_command *command)
{
    const bs_job *job = bs_job_table_find(&server->queue.jobs, command->id);
    if (!job || job->state != BS_RESERVED || !job->tube->pending_claims)
        return false;
    const bs_session *holder = bs_job_holder(&server->queue, job);
    return holder->remote && holder->remote->claimed_tube && holder->remote->claimed == job->id;
}

static bool is_undecided(const bs_server *server, const bs_session *session, const bs_command *command, bool decided)
{
    switch (command->verb) {
    case BS_VERB_DELETE:
    case BS_VERB_MOVE:
    case BS_VERB_RESERVE_JOB:
    case BS_VERB_STATS_JOB:
        return job_is_undecided(server, command);
    case BS_VERB_PEEK_READY:
        return !decided && session->use->pending_claims;
    case BS_VERB_STATS_TUBE:
    case BS_VERB_LIST_JOBS:
    case BS_VERB_TRUNCATE:
        return !decided && tube_is_undecided(server, command);
    case BS_VERB_RESERVE:
    case BS_VERB_RESERVE_WITH_TIMEOUT:
    case BS_VERB_RESERVE_BATCH:
        return !decided && watches_claims(session);
    default:
        return false;
    }
}

static void add_waiter(bs_server *server, const bs_session *session, bool request)
{
    bs_pending_claims *pending = &server->pending_claims;
    add(&pending->waiters, (bs_pending_claim){.number = pending->last, .session = session->id, .request = request});
}

bool bs_pending_claims_stall(bs_server *server, bs_session *session, const bs_command *command)
{
    const bool decided = session->claims_decided;
    session->claims_decided = false;
    if (server->pending_claims.claims.count == 0 || !is_undecided(server, session, command, decided))
        return false;
    session->stalled = true;
    add_waiter(server, session, false);
    return true;
}

bool bs_claims_undecided(bs_server *server, bs_session *session)
{
    if (!watches_claims(session))
        return false;
    add_waiter(server, session, true);
    return true;
}

void bs_pending_claims_free(bs_pending_claims *pending)
{
    free(pending->claims.items);
    free(pending->waiters.items);
    *pending = (bs_pending_claims){0};
}

/* --- the steps of a reserve ------------------------------------------------------------------------------- */

/* In the same round, because a client that reads the reply to its put may put the next job on another shard, and of two
 * jobs for one waiter the first must be claimed first. */
static void send_outcome(bs_server *server, bs_session *session, int how, const bs_job *job)
{
    if (session->proxy) {
        const bs_reserve_step waited = {session->remote->token, (uint64_t)how};
        bs_outbox_must_add(&server->outboxes[session->peer], BS_FRAME_WAITED, session->home, &waited, sizeof waited);
    } else {
        session->remote->waited = (uint8_t)how;
        bs_session_list_add(&server->reserving, session);
    }
    if (!job)
        return;
    session->remote->claimed = job->id;
    add_claim(server, session, job);
}

void bs_claim_wait(bs_server *server, bs_session *session, uint64_t token, int64_t until, bs_now now)
{
    bs_remote *remote = bs_remote_of(server, session);
    if (!remote)
        return;
    remote->token = token;
    remote->claimed = 0;
    bs_job *job = bs_queue_best_loaded(&server->queue, session, now);
    if (!session->proxy)
        session->since = BS_SINCE_NOW;
    if (job) {
        remote->claimed_since = job->at;
        session->claiming = true;
        bs_job_make_reserved(&server->queue, session, job, now);
        session->claiming = false;
        send_outcome(server, session, BS_WAITED_JOB, job);
    } else if (bs_queue_deadline_soon(session, now)) {
        send_outcome(server, session, BS_WAITED_DEADLINE_SOON, NULL);
    } else if (until <= now.mono || session->eof) {
        send_outcome(server, session, BS_WAITED_TIMED_OUT, NULL);
    } else {
        session->claiming = true;
        bs_queue_wait(&server->queue, session, until);
    }
}

void bs_claim_served(bs_server *server, bs_session *session, bs_served how, bs_job *job)
{
    session->claiming = false;
    session->remote->claimed_since = 0; /* it has just become ready */
    send_outcome(server, session,
                 how == BS_SERVED_JOB         ? BS_WAITED_JOB
                 : how == BS_SERVED_TIMED_OUT ? BS_WAITED_TIMED_OUT
                                              : BS_WAITED_DEADLINE_SOON,
                 job);
}

/* Ends the claim; returns its job if the session still holds it, and its tube. */
static bs_job *claimed_job(bs_server *server, bs_session *session, uint64_t token, bs_tube **tube)
{
    bs_remote *remote = session->remote;
    if (!remote || remote->token != token || remote->claimed == 0)
        return NULL;
    bs_job *job = bs_job_table_find(&server->queue.jobs, remote->claimed);
    remote->claimed = 0;
    *tube = remove_claim(server, session);
    bool held = job && job->state == BS_RESERVED && bs_job_holder(&server->queue, job) == session;
    return held ? job : NULL;
}

/* The job is ready again, as if it had not been claimed. */
static void put_back(bs_server *server, const bs_session *session, bs_job *job, bs_now now)
{
    const int64_t since = session->remote->claimed_since;
    bs_job_unlink(&server->queue, job);
    job->reserves--;
    if (job->tube->policy) {
        bs_throttle_return_token(&server->queue, job->tube, now);
        bs_schedule_tube(&server->queue, job->tube);
    }
    bs_job_make_ready(&server->queue, job, now);
    if (job->state != BS_READY)
        return;
    if (since)
        job->at = since;
    if (bs_expiry_reached(job, now.wall))
        bs_job_set_expiry(&server->queue, job, now); /* while it was claimed, its time may have passed */
}

bool bs_claim_take(bs_server *server, bs_session *session, uint64_t token, bs_now now)
{
    bs_tube *tube = NULL;
    bs_job *job = claimed_job(server, session, token, &tube);
    if (job && session->batch)
        bs_serve_waiters(&server->queue, tube, now); /* the batch takes no job that one of them would have got */
    if (job && !bs_job_load(&server->queue, job, now)) {
        if (job->state == BS_RESERVED)
            put_back(server, session, job, now);
        job = NULL;
    }
    if (job) {
        const int64_t since = session->remote->claimed_since;
        bs_job_count_reserve(&server->queue, job, since ? since : now.wall, now);
        bs_binlog_reserved(server->queue.binlog, job);
        bs_reply_reserved(server, session, job, BS_WORST_PRIORITY, now);
        if (!session->proxy)
            bs_latency_replied(&server->latency, session, session->verb, session->since);
    }
    if (tube)
        bs_serve_waiters(&server->queue, tube, now); /* waiters for the decision */
    return job != NULL;
}

bool bs_claim_cancel(bs_server *server, bs_session *session, uint64_t token, bs_now now)
{
    if (session->claiming && session->remote->token == token) {
        session->claiming = false;
        bs_queue_stop_waiting(&server->queue, session);
        return true;
    }
    if (session->proxy && session->waiting) { /* a whole reserve */
        bs_queue_stop_waiting(&server->queue, session);
        return true;
    }
    bs_tube *tube = NULL;
    bs_job *job = claimed_job(server, session, token, &tube);
    if (!job) {
        if (tube)
            bs_serve_waiters(&server->queue, tube, now);
        return false;
    }
    put_back(server, session, job, now);
    return true;
}

void bs_claim_abandon(bs_server *server, bs_session *session, bs_now now)
{
    if (session->remote)
        (void)bs_claim_cancel(server, session, session->remote->token, now);
}

void bs_claims_tick(bs_server *server, bs_now now)
{
    for (bs_session *session; (session = due_claim(server, now));) {
        if (session->proxy)
            server->queue.unresponsive[session->peer] = true;
        (void)bs_claim_cancel(server, session, session->remote->token, now);
    }
}

void bs_claims_peer_responds(bs_server *server, uint32_t peer, bs_now now)
{
    const bs_sessions *sessions = &server->queue.sessions;
    server->queue.unresponsive[peer] = false;
    for (uint32_t slot = 0; slot < sessions->count; slot++) {
        const uint64_t id = sessions->slots[slot] ? sessions->slots[slot]->id : 0;
        /* Serving may end a session's wait, or the session. */
        for (uint32_t i = 0;; i++) {
            const bs_session *session = bs_sessions_find(sessions, id);
            if (!session || !session->proxy || session->peer != peer || !session->waiting || i >= session->watch_count)
                break;
            bs_serve_waiters(&server->queue, session->watches[i].tube, now);
        }
    }
}
