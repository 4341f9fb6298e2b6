/* Replication: a generation counts as synced when the *replicator*, too, has its bytes.
 *
 * The replicator is a thread of the caller. It takes the parts of files that were written, reads them from the files,
 * stores them elsewhere, and confirms the generation. So it shares no memory with the loop but this record, and the loop
 * never waits for it, except at a stop and in bs_binlog_sync_here.
 *
 *   P1  Parts are offered in the order of their bytes, each byte once: a part begins where the one before it ends, or at
 *       the start of the next file. Together they are the files, without what follows the last entry of each.
 *   P2  Offered bytes never change, and their file stays until the generation is confirmed (B3).
 *   P3  After a failure nothing is confirmed any more, and the binlog fails as after a failed sync (B4).
 */
#ifndef BS_REPLICATION_H
#define BS_REPLICATION_H

#include "api/replication.h"

typedef struct bs_replication bs_replication;

/* Makes `wake_fd`, of the caller, readable after each confirmation. NULL without memory or descriptors. */
bs_replication *bs_replication_new(int wake_fd);

/* Ignores NULL. */
void bs_replication_free(bs_replication *replication);

/* --- the loop --------------------------------------------------------------------------------------------- */

/* Adds a part to the next offer. */
void bs_replication_add(bs_replication *replication, bs_replicated_part part);

/* Offers what was added, as this generation, which rises. */
void bs_replication_offer(bs_replication *replication, uint64_t generation);

/* Returns 1 if the generation is confirmed, 0 if not, or the negative errno of the failure; with `wait` not 0. */
int bs_replication_confirmed(bs_replication *replication, uint64_t generation, bool wait);

/* --- the replicator, from its own thread ------------------------------------------------------------------- */

/* The eventfd that is readable when something was offered. */
int bs_replication_fd(const bs_replication *replication);

/* Takes up to `most` parts, oldest first, and returns how many. `*generation` is the one that has everything up to the
 * last of them, or 0 if more parts of it follow. */
size_t bs_replication_take(bs_replication *replication, bs_replicated_part *parts, size_t most, uint64_t *generation);

/* Confirms this generation and all before it. */
void bs_replication_confirm(bs_replication *replication, uint64_t generation);

/* Fails with a negative errno; the first failure counts. */
void bs_replication_fail(bs_replication *replication, int error);

#endif
