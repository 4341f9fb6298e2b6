/* The upcalls for Python, in order: requests of the core, and frames of other workers.
 *
 * The queue has no bound of its own. It stays short because a session is parked while Python has its command, and
 * because one round reads a limited number of frames from a worker (worker_links.h).
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
    uint32_t capacity;      /* a power of two, or 0 */
    bs_queued_upcall taken; /* the last upcall taken, whose bytes are still in use */
} bs_upcalls;

/* Adds an upcall without bytes. */
bs_queued_upcall *bs_upcalls_add(bs_upcalls *upcalls, int kind, uint32_t shard, uint64_t session);

/* 1, or 0 if there is none. The bytes are valid until the next call; the caller owns the descriptor. */
int bs_upcalls_take(bs_upcalls *upcalls, bs_upcall *upcall);
void bs_upcalls_free(bs_upcalls *upcalls);

#endif
