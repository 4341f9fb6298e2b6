#include "commands/reserve.h"

#include "commands/wait.h"
#include "queue/job_state.h"
#include "queue/queue.h"
#include "server/replies.h"
#include "server/reserve_reply.h"
#include "workers/claims.h"
#include "workers/shard_waits.h"

#define DEADLINE_SOON "DEADLINE_SOON\r\n"
#define TIMED_OUT "TIMED_OUT\r\n"

void bs_execute_reserve(bs_server *server, bs_session *session, int64_t until, uint32_t worst, bs_now now)
{
    bs_queue_count_worker(&server->queue, session);
    bool soon = bs_queue_deadline_soon(session, now);
    if (soon && !bs_queue_any_ready(session)) {
        bs_reply(server, session, DEADLINE_SOON, BS_HOLD_NONE);
        return;
    }
    bs_job *job = bs_queue_reserve(&server->queue, session, now);
    if (job)
        bs_reply_reserved(server, session, job, worst, now);
    else if (soon)
        bs_reply(server, session, DEADLINE_SOON, BS_HOLD_NONE);
    else if (until <= now.mono || session->eof)
        bs_reply(server, session, TIMED_OUT, bs_binlog_hold(server->queue.binlog));
    else
        bs_queue_wait(&server->queue, session, until);
}

void bs_execute_served(void *context, bs_session *session, bs_served how, bs_job *job, bs_now now)
{
    bs_server *server = context;
    if (session->remote && session->remote->wait.active) {
        bs_shard_wait_served(server, session, how, now);
        return;
    }
    if (session->claiming) {
        bs_claim_served(server, session, how, job);
        return;
    }
    if (how == BS_SERVED_JOB)
        bs_reply_reserved(server, session, job, BS_WORST_PRIORITY, now);
    else if (how == BS_SERVED_DELETED || how == BS_SERVED_BURIED)
        bs_wait_served(server, session, how);
    else
        bs_reply(server, session, how == BS_SERVED_TIMED_OUT ? TIMED_OUT : DEADLINE_SOON, BS_HOLD_NONE);
    if (!session->proxy)
        bs_latency_replied(&server->latency, session, session->verb, BS_SINCE_NOW);
    bs_session_list_add(&server->runnable, session);
}
