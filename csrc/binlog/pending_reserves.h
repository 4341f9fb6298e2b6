/* Reserves that the binlog does not tell of yet.
 *
 * Most jobs are deleted, released or buried soon after they were reserved, and the entry of that has room to say when the
 * reserve was. So a reserve has an entry of its own only if a while has passed, or something else happens to the job
 * first. Who is in the ring is looked up when its time has come, and may be gone by then. Knows nothing of files.
 */
#ifndef BS_PENDING_RESERVES_H
#define BS_PENDING_RESERVES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t id;   /* of a job */
    int64_t since; /* mono; when it was reserved */
} bs_pending_reserve;

/* All zeros is an empty one. */
typedef struct {
    bs_pending_reserve *ring;
    uint32_t head;
    uint32_t count;
    uint32_t capacity; /* a power of two, or 0 */
} bs_pending_reserves;

void bs_pending_reserves_add(bs_pending_reserves *reserves, uint64_t id, int64_t since);

/* When the first one was reserved, INT64_MAX without any. */
int64_t bs_pending_reserves_first(const bs_pending_reserves *reserves);

/* Takes the first one if it was reserved at this time or before. */
bool bs_pending_reserves_take(bs_pending_reserves *reserves, int64_t until, bs_pending_reserve *reserve);

void bs_pending_reserves_free(bs_pending_reserves *reserves);

#endif
