#include "workers/claims.h"

#include <errno.h>

#include "queue/job_state.h"
#include "queue/queue.h"
#include "queue/waiters.h"
#include "server/remote_state.h"
#include "server/replies.h"
#include "workers/pending_claims.h"

/* This worker itself replies to a session at home. */
static void claimed_here(bs_server *server, const bs_session *session)
{
    if (!session->proxy)
        bs_latency_replied(&server->latency, session, session->verb, session->since);
}

bool bs_claims_undecided(bs_server *server, bs_session *session)
{
    if (!bs_pending_claims_watched(session))
        return false;
    bs_pending_claims_wait(server, session);
    return true;
}

int bs_claim_head(bs_server *server, bs_session *session, bs_head *head, bool decided, bs_now now)
{
    if (!decided && bs_claims_undecided(server, session))
        return -EAGAIN;
    const bs_job *best = bs_queue_best_job(session);
    *head = (bs_head){
        .ready = best != NULL,
        .any = bs_queue_any_ready(session),
        .soon = bs_queue_deadline_soon(session, now),
        .holds = (int)session->reserved.count,
    };
    if (best) {
        head->pri = best->pri;
        head->id = best->id;
    }
    return 0;
}

int bs_claim(bs_server *server, bs_session *session, uint32_t pri, bool decided, bs_now now)
{
    if (!decided && bs_claims_undecided(server, session))
        return -EAGAIN;
    const bs_job *best = bs_queue_best_job(session);
    if (!best || best->pri > pri)
        return 0;
    bs_reply_job(server, session, "RESERVED", bs_queue_reserve(&server->queue, session, now));
    claimed_here(server, session);
    return 1;
}

/* In the same round, because a client that reads the reply to its put may put the next job on another shard, and of two
 * jobs for one waiter the first must be claimed first. */
static void send_outcome(bs_server *server, bs_session *session, int how, const bs_job *job)
{
    if (session->proxy) {
        const bs_waited waited = {session->remote->token, how};
        bs_outbox_must_add(&server->outboxes[session->peer], BS_FRAME_WAITED, session->home, &waited, sizeof waited);
    } else {
        bs_queued_upcall *queued =
            bs_upcalls_add(&server->upcalls, BS_UPCALL_CLAIM_ENDED, server->queue.shard, session->id);
        queued->upcall.token = session->remote->token;
        queued->upcall.how = how;
    }
    if (!job)
        return;
    session->remote->claimed = job->id;
    bs_pending_claims_add(server, session, job);
}

int bs_claim_wait(bs_server *server, bs_session *session, uint64_t token, int64_t until, bs_now now)
{
    bs_remote *remote = bs_remote_of(server, session);
    if (!remote)
        return -ENOMEM;
    remote->token = token;
    remote->claimed = 0;
    const bs_job *best = bs_queue_best_job(session);
    if (best)
        remote->claimed_since = best->at;
    session->claiming = true;
    bs_job *job = best ? bs_queue_reserve(&server->queue, session, now) : NULL;
    session->claiming = false;
    if (!session->proxy)
        session->since = BS_SINCE_NOW;
    if (job) {
        send_outcome(server, session, BS_CLAIM_JOB, job);
    } else if (bs_queue_deadline_soon(session, now)) {
        send_outcome(server, session, BS_CLAIM_DEADLINE_SOON, NULL);
    } else if (until <= now.mono || session->eof) {
        send_outcome(server, session, BS_CLAIM_TIMED_OUT, NULL);
    } else {
        session->claiming = true;
        bs_queue_wait(&server->queue, session, until);
    }
    return 0;
}

void bs_claim_served(bs_server *server, bs_session *session, bs_served how, bs_job *job)
{
    session->claiming = false;
    session->remote->claimed_since = 0; /* it has just become ready */
    send_outcome(server, session,
         how == BS_SERVED_JOB         ? BS_CLAIM_JOB
         : how == BS_SERVED_TIMED_OUT ? BS_CLAIM_TIMED_OUT
                                      : BS_CLAIM_DEADLINE_SOON,
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
    *tube = bs_pending_claims_remove(server, session);
    bool held = job && job->state == BS_RESERVED && bs_job_holder(&server->queue, job) == session;
    return held ? job : NULL;
}

int bs_claim_take(bs_server *server, bs_session *session, uint64_t token, bs_now now)
{
    bs_tube *tube = NULL;
    bs_job *job = claimed_job(server, session, token, &tube);
    if (job) {
        const int64_t since = session->remote->claimed_since;
        bs_job_count_reserve(&server->queue, job, since ? since : now.wall, now);
        bs_binlog_reserved(server->queue.binlog, job);
        bs_reply_job(server, session, "RESERVED", job);
        claimed_here(server, session);
    }
    if (tube)
        bs_serve_waiters(&server->queue, tube, now); /* waiters for the decision */
    return job != NULL;
}

int bs_claim_cancel(bs_server *server, bs_session *session, uint64_t token, bs_now now)
{
    if (session->claiming && session->remote->token == token) {
        session->claiming = false;
        bs_queue_stop_waiting(&server->queue, session);
        return 1;
    }
    if (session->proxy && session->waiting) { /* bs_core_reserve */
        bs_queue_stop_waiting(&server->queue, session);
        return 1;
    }
    bs_tube *tube = NULL;
    bs_job *job = claimed_job(server, session, token, &tube);
    if (!job) {
        if (tube)
            bs_serve_waiters(&server->queue, tube, now);
        return 0;
    }
    int64_t since = session->remote->claimed_since;
    bs_job_unlink(&server->queue, job);
    job->reserves--;
    bs_job_make_ready(&server->queue, job, now);
    if (job->state == BS_READY && since)
        job->at = since;
    return 1;
}

void bs_claim_abandon(bs_server *server, bs_session *session, bs_now now)
{
    if (session->remote)
        (void)bs_claim_cancel(server, session, session->remote->token, now);
}

void bs_claims_tick(bs_server *server, bs_now now)
{
    for (bs_session *session; (session = bs_pending_claims_due(server, now));) {
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
