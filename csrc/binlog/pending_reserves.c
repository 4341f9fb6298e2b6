#include "binlog/pending_reserves.h"

#include <stdlib.h>

#include "base/ring.h"

enum { SMALLEST = 64 };

static bs_pending_reserve *at(const bs_pending_reserves *reserves, uint32_t index)
{
    return &reserves->ring[bs_ring_at(reserves->head, index, reserves->capacity)];
}

static void grow(bs_pending_reserves *reserves)
{
    reserves->ring =
        bs_ring_must_grow(reserves->ring, &reserves->head, &reserves->capacity, SMALLEST, sizeof *reserves->ring);
}

void bs_pending_reserves_add(bs_pending_reserves *reserves, uint64_t id, int64_t since)
{
    if (reserves->count == reserves->capacity)
        grow(reserves);
    *at(reserves, reserves->count++) = (bs_pending_reserve){id, since};
}

int64_t bs_pending_reserves_first(const bs_pending_reserves *reserves)
{
    return reserves->count ? at(reserves, 0)->since : INT64_MAX;
}

bool bs_pending_reserves_take(bs_pending_reserves *reserves, int64_t until, bs_pending_reserve *reserve)
{
    if (bs_pending_reserves_first(reserves) > until || reserves->count == 0)
        return false;
    *reserve = *at(reserves, 0);
    reserves->head++;
    reserves->count--;
    return true;
}

void bs_pending_reserves_free(bs_pending_reserves *reserves)
{
    free(reserves->ring);
    *reserves = (bs_pending_reserves){0};
}
