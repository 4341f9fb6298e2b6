/* Reserves that no binlog entry records yet.
 *
 * Most jobs are deleted, released or buried soon after the reserve, and that entry can record the time of the reserve.
 * A reserve gets an entry of its own only after a while, or when something else happens to the job. Jobs are looked up
 * when their time has come; they may be gone by then.
 */
#ifndef BS_PENDING_RESERVES_H
#define BS_PENDING_RESERVES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t id;   /* of a job */
    int64_t since; /* mono; when it was reserved */
} bs_pending_reserve;

/* Zero-initialized it is empty. */
typedef struct {
    bs_pending_reserve *ring;
    uint32_t head;
    uint32_t count;
    uint32_t capacity; /* a power of two, or 0 */
} bs_pending_reserves;

void bs_pending_reserves_add(bs_pending_reserves *reserves, uint64_t id, int64_t since);

/* Returns when the first one was reserved, INT64_MAX without any. */
int64_t bs_pending_reserves_first(const bs_pending_reserves *reserves);

/* Removes the first one if it was reserved at this time or before. */
bool bs_pending_reserves_take(bs_pending_reserves *reserves, int64_t until, bs_pending_reserve *reserve);

void bs_pending_reserves_free(bs_pending_reserves *reserves);

#endif
