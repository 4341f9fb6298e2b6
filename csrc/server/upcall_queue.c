#include "server/upcall_queue.h"

#include <stdlib.h>

#include "base/file_io.h"
#include "base/ring.h"

enum { SMALLEST = 64 };

static bs_queued_upcall *at(const bs_upcalls *upcalls, uint32_t index)
{
    return &upcalls->ring[bs_ring_at(upcalls->head, index, upcalls->capacity)];
}

bs_queued_upcall *bs_upcalls_add(bs_upcalls *upcalls, int kind, uint32_t shard, uint64_t session)
{
    if (upcalls->count == upcalls->capacity)
        upcalls->ring =
            bs_ring_must_grow(upcalls->ring, &upcalls->head, &upcalls->capacity, SMALLEST, sizeof *upcalls->ring);
    bs_queued_upcall *queued = at(upcalls, upcalls->count++);
    *queued = (bs_queued_upcall){.upcall = {.kind = kind, .shard = shard, .session = session, .fd = -1}};
    return queued;
}

int bs_upcalls_take(bs_upcalls *upcalls, bs_upcall *upcall)
{
    bs_bytes_free(&upcalls->taken.bytes);
    if (upcalls->count == 0)
        return 0;
    upcalls->taken = *at(upcalls, 0);
    upcalls->head++;
    upcalls->count--;
    *upcall = upcalls->taken.upcall;
    upcall->bytes = bs_bytes_data(&upcalls->taken.bytes);
    upcall->length = bs_bytes_length(&upcalls->taken.bytes);
    return 1;
}

void bs_upcalls_free(bs_upcalls *upcalls)
{
    bs_upcall upcall;
    while (bs_upcalls_take(upcalls, &upcall))
        bs_close(upcall.fd);
    free(upcalls->ring);
    *upcalls = (bs_upcalls){0};
}
