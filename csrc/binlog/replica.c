#include "binlog/replica.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "binlog/position.h"
#include "binlog/sync_thread.h"

enum { CHECK_MS = 100 /* how often a wait looks at the lease */ };

bool bs_lease_ended(const bs_shared *shared)
{
    const int64_t end = __atomic_load_n(&shared->lease_end, __ATOMIC_ACQUIRE);
    return end != 0 && bs_clock_boot() > end;
}

void bs_replica_offer(const bs_replica *replica, uint32_t file, int64_t end)
{
    bs_replication *positions = &replica->shared->replication[replica->worker];
    bs_position_publish(&positions->offered_file, &positions->offered_end, file, (uint64_t)end);
    bs_wake(replica->offer_fd);
}

static bool is_stored(const bs_replica *replica, uint32_t file, int64_t end)
{
    const bs_replication *positions = &replica->shared->replication[replica->worker];
    uint64_t stored_file, stored_end;
    return bs_position_read(&positions->stored_file, &positions->stored_end, &stored_file, &stored_end) &&
           (stored_file > file || (stored_file == file && stored_end >= (uint64_t)end));
}

int bs_replica_stored(const bs_replica *replica, uint32_t file, int64_t end, bool wait)
{
    while (!is_stored(replica, file, end)) {
        if (!wait)
            return 0;
        if (bs_lease_ended(replica->shared))
            return -ETIMEDOUT;
        uint64_t wakes; /* read, because poll would return at once for earlier ones */
        if (read(replica->stored_fd, &wakes, sizeof wakes) > 0)
            continue;
        struct pollfd stored = {.fd = replica->stored_fd, .events = POLLIN};
        (void)poll(&stored, 1, CHECK_MS); /* an error only shortens the wait */
    }
    return 1;
}
