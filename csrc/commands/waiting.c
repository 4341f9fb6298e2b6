#include "commands/waiting.h"

#include "base/clock.h"
#include "queue/job_state.h"
#include "queue/job_waits.h"
#include "queue/queue.h"
#include "server/replies.h"
#include "server/reserves.h"
#include "workers/claims.h"
#include "workers/shard_waits.h"

#define DEADLINE_SOON "DEADLINE_SOON\r\n"
#define TIMED_OUT "TIMED_OUT\r\n"

static void wait_here(bs_server *server, bs_session *session, uint64_t id, int64_t until, bs_now now)
{
    const bs_job *job = bs_job_table_find(&server->queue.jobs, id);
    const bs_hold written = bs_binlog_hold(server->queue.binlog);
    if (!job)
        bs_reply(server, session, "NOT_FOUND\r\n", written);
    else if (job->state == BS_BURIED)
        bs_reply_number(server, session, "BURIED", id, bs_binlog_hold_job(server->queue.binlog, job));
    else if (bs_queue_deadline_soon(session, now))
        bs_reply(server, session, DEADLINE_SOON, BS_HOLD_NONE);
    else if (until <= now.mono || session->eof)
        bs_reply(server, session, TIMED_OUT, written);
    else if (bs_queue_wait_for_job(&server->queue, session, id, true, until) != 0)
        bs_reply(server, session, "OUT_OF_MEMORY\r\n", BS_HOLD_NONE);
}

void bs_execute_wait(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    const int64_t until = now.mono + (int64_t)command->number * BS_SECOND;
    if (bs_shard_wait_concerns_others(server, session, command->id))
        bs_shard_wait_begin(server, session, command->id, until, now);
    else
        wait_here(server, session, command->id, until, now);
}

/* Replies to a wait for a job, which has ended or is buried; the session still waits. */
static void job_ended(bs_server *server, bs_session *session, bs_served how)
{
    const uint64_t id = bs_job_wait_id(session);
    bs_queue_stop_waiting(&server->queue, session);
    bs_reply_number(server, session, how == BS_SERVED_BURIED ? "BURIED" : "DELETED", id, BS_HOLD_NONE);
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
        job_ended(server, session, how);
    else
        bs_reply(server, session, how == BS_SERVED_TIMED_OUT ? TIMED_OUT : DEADLINE_SOON, BS_HOLD_NONE);
    if (!session->proxy)
        bs_latency_replied(&server->latency, session, session->verb, BS_SINCE_NOW);
    bs_session_list_add(&server->runnable, session);
}
