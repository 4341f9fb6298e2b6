#include "commands/wait.h"

#include "base/clock.h"
#include "queue/job_state.h"
#include "queue/job_waits.h"
#include "queue/queue.h"
#include "server/replies.h"
#include "workers/shard_waits.h"

static void wait_here(bs_server *server, bs_session *session, uint64_t id, int64_t until, bs_now now)
{
    const bs_job *job = bs_job_table_find(&server->queue.jobs, id);
    const bs_hold written = bs_binlog_hold(server->queue.binlog);
    if (!job)
        bs_reply(server, session, "NOT_FOUND\r\n", written);
    else if (job->state == BS_BURIED)
        bs_reply_number(server, session, "BURIED", id, bs_binlog_hold_job(server->queue.binlog, job));
    else if (bs_queue_deadline_soon(session, now))
        bs_reply(server, session, "DEADLINE_SOON\r\n", BS_HOLD_NONE);
    else if (until <= now.mono || session->eof)
        bs_reply(server, session, "TIMED_OUT\r\n", written);
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

void bs_wait_served(bs_server *server, bs_session *session, bs_served how)
{
    const uint64_t id = bs_job_wait_job(session);
    bs_queue_stop_waiting(&server->queue, session);
    bs_reply_number(server, session, how == BS_SERVED_BURIED ? "BURIED" : "DELETED", id, BS_HOLD_NONE);
}
