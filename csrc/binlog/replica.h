/* The replica of a binlog: a generation counts as synced when another process, the *replicator*, has stored its bytes
 * elsewhere, too.
 *
 * Both processes only exchange positions in shared memory (api/replication.h), and wake each other by eventfds. So
 * replies, removals of files, the durable position and moves of jobs wait for the replicator as they wait for a sync.
 *
 *   P1  What is offered is on this disk, never changes, and stays until it is stored (B3). Files below the offered one
 *       are complete. A file that this process has completed has the size of its entries; one that a crash left may be
 *       longer.
 *   P2  Nothing is offered, and no reply leaves, while an earlier offer is not stored.
 *   P3  No reply leaves after the end of the lease.
 */
#ifndef BS_REPLICA_H
#define BS_REPLICA_H

#include <stdbool.h>
#include <stdint.h>

#include "api/types.h"

typedef struct {
    bs_shared *shared;
    uint32_t worker;
    int offer_fd;  /* owned by the core */
    int stored_fd; /* likewise */
} bs_replica;

/* Returns whether there is a lease, and it has ended. */
bool bs_lease_ended(const bs_shared *shared);

/* Offers everything up to the end of this file. */
void bs_replica_offer(const bs_replica *replica, uint32_t file, int64_t end);

/* Returns 1 if everything up to this position is stored, else 0; with `wait` not before that, but -ETIMEDOUT when the
 * lease ends. */
int bs_replica_stored(const bs_replica *replica, uint32_t file, int64_t end, bool wait);

#endif
