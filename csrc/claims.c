#include "claims.h"

#include <errno.h>

#include "commands.h"
#include "places.h"
#include "route.h"

static const bs_job *best_job(const bs_session *session)
{
    const bs_job *best = NULL;
    for (uint32_t i = 0; i < session->watch_count; i++) {
        const bs_tube *tube = session->watches[i].tube;
        const bs_job *first = tube->pause_ns ? NULL : bs_ready_first(&tube->ready);
        if (first && (!best || bs_job_before(first, best)))
            best = first;
    }
    return best;
}

void bs_claim_head(const bs_session *session, bs_head *head, bs_now now)
{
    const bs_job *best = best_job(session);
    *head = (bs_head){
        .ready = best != NULL,
        .any = bs_queue_any_ready(session),
        .soon = bs_queue_deadline_soon(session, now),
    };
    if (best) {
        head->pri = best->pri;
        head->id = best->id;
    }
}

int bs_claim(bs_server *server, bs_session *session, uint32_t pri, uint64_t id, bs_now now)
{
    const bs_job *best = best_job(session);
    if (!best || best->pri > pri || (best->pri == pri && best->id > id))
        return 0;
    bs_reply_job(server, session, "RESERVED", bs_queue_reserve(&server->queue, session, now));
    return 1;
}

static void tell(bs_server *server, bs_session *session, int how, const bs_job *job)
{
    uint32_t home = session->proxy ? session->peer : server->queue.shard;
    bs_letter *letter = bs_mails_add(&server->mails, BS_MAIL_CLAIM, home, session->id);
    letter->mail.token = session->route->token;
    letter->mail.how = how;
    if (!job)
        return;
    letter->mail.pri = job->pri;
    letter->mail.id = job->id;
    session->route->claimed = job->id;
}

int bs_claim_wait(bs_server *server, bs_session *session, uint64_t token, int64_t until, bs_now now)
{
    bs_route *route = bs_route_of(server, session);
    if (!route)
        return -ENOMEM;
    route->token = token;
    route->claimed = 0;
    const bs_job *best = best_job(session);
    if (best)
        route->claimed_since = best->at;
    bs_job *job = best ? bs_queue_reserve(&server->queue, session, now) : NULL;
    if (job) {
        tell(server, session, BS_CLAIM_JOB, job);
    } else if (bs_queue_deadline_soon(session, now)) {
        tell(server, session, BS_CLAIM_DEADLINE_SOON, NULL);
    } else if (until <= now.mono || session->eof) {
        tell(server, session, BS_CLAIM_TIMED_OUT, NULL);
    } else {
        session->claiming = true;
        bs_queue_wait(&server->queue, session, until);
    }
    return 0;
}

void bs_claim_served(bs_server *server, bs_session *session, bs_served how, bs_job *job)
{
    session->claiming = false;
    session->route->claimed_since = 0; /* it has become ready just now */
    tell(server, session,
         how == BS_SERVED_JOB         ? BS_CLAIM_JOB
         : how == BS_SERVED_TIMED_OUT ? BS_CLAIM_TIMED_OUT
                                      : BS_CLAIM_DEADLINE_SOON,
         job);
}

/* The job this session has claimed and still holds; its claim is over. */
static bs_job *claimed_job(bs_server *server, bs_session *session, uint64_t token)
{
    bs_route *route = session->route;
    if (!route || route->token != token || route->claimed == 0)
        return NULL;
    bs_job *job = bs_job_table_find(&server->queue.jobs, route->claimed);
    route->claimed = 0;
    bool held = job && job->state == BS_RESERVED && bs_job_holder(&server->queue, job) == session;
    return held ? job : NULL;
}

int bs_claim_take(bs_server *server, bs_session *session, uint64_t token)
{
    const bs_job *job = claimed_job(server, session, token);
    if (job)
        bs_reply_job(server, session, "RESERVED", job);
    return job != NULL;
}

int bs_claim_cancel(bs_server *server, bs_session *session, uint64_t token, bs_now now)
{
    if (session->claiming && session->route->token == token) {
        session->claiming = false;
        bs_queue_stop_waiting(&server->queue, session);
        return 1;
    }
    if (session->proxy && session->waiting) { /* bs_core_reserve */
        bs_queue_stop_waiting(&server->queue, session);
        return 1;
    }
    bs_job *job = claimed_job(server, session, token);
    if (!job)
        return 0;
    int64_t since = session->route->claimed_since;
    bs_place_nowhere(&server->queue, job);
    job->reserves--;
    bs_place_ready(&server->queue, job, now);
    if (job->state == BS_READY && since)
        job->at = since;
    return 1;
}

void bs_claim_end(bs_server *server, bs_session *session, bs_now now)
{
    if (session->route)
        (void)bs_claim_cancel(server, session, session->route->token, now);
}
