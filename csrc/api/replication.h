/* The client that replicates the binlog: a thread beside the loop that has each generation stored elsewhere. */
#ifndef BS_API_REPLICATION_H
#define BS_API_REPLICATION_H

#include "api/server.h"

/* cdef begin */

/* The bytes `begin` to `end` of binlog.<file>. */
typedef struct {
    uint32_t file;
    int64_t begin;
    int64_t end;
} bs_replicated_part;

/* From now on no reply leaves, and no file is removed, before the replicator has confirmed what that depends on
 * (replication.h). All files are offered at once, as the first generation. Call it after bs_core_recover and before any
 * command. 0; -EINVAL: the core has no binlog, or does not sync before each reply; -ENOMEM: no memory or descriptor. */
int bs_core_replicate(bs_core *core);

/* The functions below belong to the replicator's thread, which has to end before bs_core_free. */

/* The eventfd that is readable when something was offered; the core owns it. */
int bs_core_replication_fd(const bs_core *core);

/* Takes up to `most` parts, oldest first, and returns how many. `*generation` is the one that these parts complete, or 0
 * if more parts follow. */
size_t bs_core_take_parts(bs_core *core, bs_replicated_part *parts, size_t most, uint64_t *generation);

/* Confirms that this generation, and everything before it, is stored. */
void bs_core_confirm(bs_core *core, uint64_t generation);

/* Stops the core as a failed sync does: nothing is acknowledged any more. `error` is a negative errno. */
void bs_core_fail_replication(bs_core *core, int error);

/* cdef end */

#endif
