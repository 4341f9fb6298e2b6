#include "server/reserves.h"

#include <string.h>

#include "base/number.h"
#include "queue/job_state.h"
#include "queue/queue.h"
#include "server/replies.h"

/* Bodies that one batch reads back from the disk, because other clients wait meanwhile. */
enum { BODIES_READ_MAX = 32 };

enum { JOB_LINE_MAX = 64 + BS_TUBE_NAME_MAX };

typedef struct {
    bs_bytes text;
    bs_hold hold;
    uint32_t count;
    bool failed; /* no memory */
} batch;

static void add(batch *jobs, const bs_server *server, const bs_job *job)
{
    const bs_hold hold = bs_binlog_hold_job(server->queue.binlog, job);
    char *line = bs_bytes_reserve(&jobs->text, JOB_LINE_MAX + job->body_size);
    if (!line) {
        jobs->failed = true;
        return;
    }
    char *out = bs_write_number(bs_write_text(line, "JOB "), job->id);
    out = bs_write_text(bs_write_text(bs_write_text(out, " "), job->tube->name), " ");
    out = bs_write_text(bs_write_number(out, job->body_size - 2), "\r\n");
    memcpy(out, bs_job_body(job), job->body_size);
    bs_bytes_extend(&jobs->text, (size_t)(out - line) + job->body_size);
    jobs->hold = hold > jobs->hold ? hold : jobs->hold;
    jobs->count++;
}

/* Returns the next job of the batch, or NULL. A tube with a pending claim hands out no later job. */
static bs_job *next_job(const bs_server *server, const bs_session *session, const batch *jobs, uint32_t worst)
{
    bs_job *best = jobs->count < session->batch ? bs_queue_best_job(session) : NULL;
    if (!best || best->pri > worst || best->tube->pending_claims)
        return NULL;
    const uint64_t before = bs_bytes_length(&session->out) + bs_bytes_length(&jobs->text);
    return before + JOB_LINE_MAX + best->body_size <= server->limits.output ? best : NULL;
}

static void reserve_more(bs_server *server, bs_session *session, batch *jobs, uint32_t worst, bs_now now)
{
    uint32_t left = BODIES_READ_MAX;
    bs_job *job;
    while (!jobs->failed && (job = next_job(server, session, jobs, worst))) {
        if (!bs_job_has_body(job)) {
            if (left-- == 0)
                return;
            if (!bs_job_load(&server->queue, job, now))
                continue; /* it is buried, or its tube pauses */
        }
        bs_job_make_reserved(&server->queue, session, job, now);
        add(jobs, server, job);
    }
}

void bs_reply_reserved(bs_server *server, bs_session *session, bs_job *job, uint32_t worst, bs_now now)
{
    if (!session->batch) {
        bs_reply_job(server, session, "RESERVED", job);
        return;
    }
    batch jobs = {.hold = BS_HOLD_NONE};
    const uint64_t first = job->id;
    add(&jobs, server, job);
    reserve_more(server, session, &jobs, worst, now);
    if (jobs.failed)
        bs_session_break(server, session); /* its jobs are ready again */
    else
        bs_reply_batch(server, session, jobs.count, &jobs.text, first, jobs.hold);
    bs_bytes_free(&jobs.text);
}

void bs_execute_reserve(bs_server *server, bs_session *session, int64_t until, uint32_t worst, bs_now now)
{
    bs_queue_count_worker(&server->queue, session);
    bool soon = bs_queue_deadline_soon(session, now);
    if (soon && !bs_queue_any_ready(session)) {
        bs_reply(server, session, "DEADLINE_SOON\r\n", BS_HOLD_NONE);
        return;
    }
    bs_job *job = bs_queue_reserve(&server->queue, session, now);
    if (job)
        bs_reply_reserved(server, session, job, worst, now);
    else if (soon)
        bs_reply(server, session, "DEADLINE_SOON\r\n", BS_HOLD_NONE);
    else if (until <= now.mono || session->eof)
        bs_reply(server, session, "TIMED_OUT\r\n", bs_binlog_hold(server->queue.binlog));
    else
        bs_queue_wait(&server->queue, session, until);
}
