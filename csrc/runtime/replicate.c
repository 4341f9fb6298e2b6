/* The functions of api/replication.h. */
#include <errno.h>

#include "api/replication.h"
#include "runtime/core_state.h"

int bs_core_replicate(bs_core *core)
{
    if (!core->server.queue.binlog || core->binlog->sync_interval_ns != 0 || core->replication)
        return -EINVAL;
    core->replication = bs_replication_new(core->wake_fd);
    if (!core->replication)
        return -ENOMEM;
    bs_binlog_replicate(core->binlog, core->replication);
    return 0;
}

int bs_core_replication_fd(const bs_core *core)
{
    return bs_replication_fd(core->replication);
}

size_t bs_core_take_parts(bs_core *core, bs_replicated_part *parts, size_t most, uint64_t *generation)
{
    return bs_replication_take(core->replication, parts, most, generation);
}

void bs_core_confirm(bs_core *core, uint64_t generation)
{
    bs_replication_confirm(core->replication, generation);
}

void bs_core_fail_replication(bs_core *core, int error)
{
    bs_replication_fail(core->replication, error);
}
