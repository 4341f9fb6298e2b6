/* Job owners: a table in shared memory with the worker of each of the last BS_OWNERS ids.
 *
 * A job stays with its worker until the server stops, so an entry never changes until the put of an id BS_OWNERS later
 * overwrites it. Without an entry, all workers have to be asked.
 */
#ifndef BS_OWNERS_H
#define BS_OWNERS_H

#include "api/types.h"

enum { BS_OWNER_UNKNOWN = -1 };

void bs_owner_set(bs_shared *shared, uint64_t id, uint32_t worker);

/* Returns a worker or BS_OWNER_UNKNOWN. */
int bs_owner_of(const bs_shared *shared, uint64_t id);

#endif
