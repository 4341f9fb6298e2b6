/* What the core wants answered by Python with the help of other workers, and what those have sent to Python, in order.
 *
 * Whoever adds an upcall cannot wait, so the queue has no bound of its own; it is kept short by those who add: a session
 * is parked while Python has a command of its, and a worker is read so far and no further in one round (worker_links.h).
 */
#ifndef BS_UPCALLS_H
#define BS_UPCALLS_H

#include "api/server.h"
#include "base/bytes.h"

typedef struct {
    bs_upcall upcall; /* without bytes */
    bs_bytes bytes;
} bs_queued_upcall;

/* All zeros is an empty queue. It owns the descriptors in it. */
typedef struct {
    bs_queued_upcall *ring;
    uint32_t head;
    uint32_t count;
    uint32_t capacity; /* a power of two, or 0 */
    bs_queued_upcall taken;   /* the last one given out: its bytes are still in use */
} bs_upcalls;

/* Adds an upcall without bytes. */
bs_queued_upcall *bs_upcalls_add(bs_upcalls *upcalls, int kind, uint32_t shard, uint64_t session);

/* 1, or 0 when there is none. The bytes are good until the next call; a descriptor is the caller's. */
int bs_upcalls_take(bs_upcalls *upcalls, bs_upcall *upcall);
void bs_upcalls_free(bs_upcalls *upcalls);

#endif
