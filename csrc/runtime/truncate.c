/* bs_core_truncate: empties a tube for an operator, with deletes that no client has requested. */

#include "binlog_files/entry.h"
#include "queue/job_lifetime.h"
#include "runtime/connection.h"

/* As for clients: without a sync before replies there is no wait. */
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
