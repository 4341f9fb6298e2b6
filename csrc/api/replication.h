/* Replication: how a worker's core and the replicator, another process, agree on what of a binlog is stored elsewhere. */
#ifndef BS_API_REPLICATION_H
#define BS_API_REPLICATION_H

#include "api/server.h"

/* cdef begin */

/* From now on a generation counts as synced only when the replicator, too, has stored it. Call it before
 * bs_core_recover, which waits until all that it has read is stored. Both are eventfds, which the core closes, also on
 * failure: it writes to `offer_fd` after an offer, and the replicator to `stored_fd` when it has stored something.
 * Returns 0; -EINVAL: the core has no binlog or does not sync before each reply; or another negative errno. */
int bs_core_replicate(bs_core *core, int offer_fd, int stored_fd);

/* On a standby: reads on up to a position of the binlog, which the replicator writes to the folder. Call it before
 * bs_core_recover, which then reads only the rest. After an error nothing but bs_core_free may be called. */
int bs_core_follow(bs_core *core, uint64_t file, uint64_t end, bs_now now);

/* For the replicator. Returns 1 and the position up to which a worker's binlog is to be stored: all files below `*file`
 * as they are, and that one up to `*end`. 0 while it is being changed: call again. It starts at 0, 0. */
int bs_offered_position(const bs_shared *shared, uint32_t worker, uint64_t *file, uint64_t *end);

/* Publishes the position up to which the binlog is stored; on a standby, that of its copy. */
void bs_publish_stored_position(bs_shared *shared, uint32_t worker, uint64_t file, uint64_t end);

/* Reads the position that was published last, as bs_offered_position. */
int bs_stored_position(const bs_shared *shared, uint32_t worker, uint64_t *file, uint64_t *end);

/* Sets when the lease ends: nanoseconds of CLOCK_BOOTTIME, so that a suspended machine counts, too. Workers send nothing
 * later than that, but stop. 0: there is no lease. */
void bs_set_lease_end(bs_shared *shared, int64_t end);

/* cdef end */

#endif
