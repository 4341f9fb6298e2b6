/* Operations of an operator on a running core: new settings and policies, tracing, compaction and truncation. */

#include <errno.h>
#include <stdio.h>

#include "api/policies.h"
#include "binlog_files/entry.h"
#include "queue/job_lifetime.h"
#include "queue/tube_policies.h"
#include "runtime/connection.h"
#include "server/timeout_schedule.h"
#include "server/trace.h"

void bs_core_change(bs_core *core, uint32_t max_job_size, int64_t sync_interval_ns)
{
    core->server.max_job_size = max_job_size;
    if (core->binlog && core->binlog->sync_interval_ns >= 0 && sync_interval_ns >= 0 && !core->replica.shared)
        core->binlog->sync_interval_ns = sync_interval_ns;
    bs_core_wake(core); /* replies that wait for a sync may leave now */
}

void bs_core_limit(bs_core *core, const bs_limits *limits, bs_now now)
{
    core->server.limits = *limits;
    bs_timeouts_changed(&core->server, now);
    bs_core_wake(core);
}

void bs_core_trace(bs_core *core, int level, int64_t slow_ns)
{
    bs_server *server = &core->server;
    bool slow = server->tracing.slow_ns > 0;
    server->tracing.level = level;
    server->tracing.slow_ns = slow_ns;
    for (uint32_t slot = 0; slot < server->queue.sessions.count; slot++) {
        bs_session *session = server->queue.sessions.slots[slot];
        if (!session || session->proxy)
            continue;
        if (!bs_trace_enabled(server)) {
            bs_trace_free(session->trace);
            session->trace = NULL;
        } else if (!session->trace) {
            bs_connection_trace(core, session, bs_now_read());
        } else if (slow != (slow_ns > 0)) {
            bs_slow_begin(&session->trace->slow, session);
        }
    }
}

void bs_core_compact(bs_core *core, int64_t per_cent, bs_compact_state *state, bs_now now)
{
    if (!core->binlog || core->fatal) {
        *state = (bs_compact_state){.outcome = BS_STEP_DONE};
        return;
    }
    bs_compact_more(core->binlog, per_cent, state, now);
    bs_core_wake(core);
}

int bs_core_set_policies(bs_core *core, const bs_policy *policies, uint32_t count, bs_now now)
{
    bs_policies *compiled = count ? bs_policies_new(policies, count) : NULL;
    if (count && !compiled)
        return -ENOMEM;
    bs_queue_set_policies(&core->server.queue, compiled, now);
    bs_core_wake(core); /* waiting clients may have jobs now */
    return 0;
}

int bs_core_policy_of(const bs_core *core, const char *name, size_t length, char *pattern, size_t capacity)
{
    const bs_tube *tube = bs_tubes_find(&core->server.queue.tubes, name, length);
    if (!tube)
        return -ENOENT;
    (void)snprintf(pattern, capacity, "%s", tube->policy ? tube->policy->pattern : "");
    return 0;
}

/* Without a sync before replies, neither clients nor operators wait for one. */
static bool on_disk(const bs_binlog *binlog, uint64_t gen)
{
    return !binlog || binlog->sync_interval_ns != 0 || binlog->synced >= gen;
}

int bs_core_truncate(bs_core *core, const char *name, size_t length, unsigned states, uint32_t most,
                     bs_truncate_state *state, bs_now now)
{
    bs_queue *queue = &core->server.queue;
    uint32_t removed = 0;
    int error = 0;
    state->outcome = BS_STEP_WAIT;
    if (core->fatal)
        return 0; /* the process ends soon */
    while (removed < most && !error) {
        /* Looked up each time, because the last job may free the tube. */
        const bs_tube *tube = bs_tubes_find(&queue->tubes, name, length);
        bs_job *job = tube ? bs_tube_any_job(tube, states) : NULL;
        if (!job)
            break;
        error = bs_queue_remove(queue, job, BS_ENDED_TRUNCATED, now);
        removed += !error;
    }
    if (removed > 0) {
        state->removed += removed;
        state->gen = core->binlog ? core->binlog->gen : 0;
        bs_core_wake(core);
    }
    if (error)
        return error;
    if (most > 0 && removed == most)
        state->outcome = BS_STEP_MORE;
    else if (on_disk(core->binlog, state->gen))
        state->outcome = BS_STEP_DONE;
    return 0;
}
