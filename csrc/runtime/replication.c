/* The functions of api/replication.h. */
#include "api/replication.h"

#include <errno.h>
#include <sys/epoll.h>

#include "base/file_io.h"
#include "binlog/position.h"
#include "runtime/connection.h"

int bs_core_replicate(bs_core *core, int offer_fd, int stored_fd)
{
    int error = !core->config.binlog_dir || core->config.sync_interval_ns != 0 || core->replica.shared ? -EINVAL : 0;
    if (!error)
        error = bs_core_epoll(core, EPOLL_CTL_ADD, stored_fd, (uint64_t)stored_fd, EPOLLIN | EPOLLET);
    if (error) {
        bs_close(offer_fd);
        bs_close(stored_fd);
        return error;
    }
    core->replica = (bs_replica){core->server.queue.shared, core->config.worker, offer_fd, stored_fd};
    return 0;
}

int bs_offered_position(const bs_shared *shared, uint32_t worker, uint64_t *file, uint64_t *end)
{
    const bs_replication *positions = &shared->replication[worker];
    return bs_position_read(&positions->offered_file, &positions->offered_end, file, end);
}

void bs_publish_stored_position(bs_shared *shared, uint32_t worker, uint64_t file, uint64_t end)
{
    bs_replication *positions = &shared->replication[worker];
    bs_position_publish(&positions->stored_file, &positions->stored_end, file, end);
}

int bs_stored_position(const bs_shared *shared, uint32_t worker, uint64_t *file, uint64_t *end)
{
    const bs_replication *positions = &shared->replication[worker];
    return bs_position_read(&positions->stored_file, &positions->stored_end, file, end);
}

void bs_set_lease_end(bs_shared *shared, int64_t end)
{
    __atomic_store_n(&shared->lease_end, end, __ATOMIC_RELEASE);
}
