#include "links/proxies.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { SMALLEST = 16 };

/* The low halves of session numbers are consecutive slots; a multiplication spreads them. */
static size_t place_of(const bs_proxies *proxies, uint64_t home)
{
    return (size_t)(home * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (proxies->capacity - 1);
}

/* The slot of this number, or the empty slot where it belongs. */
static bs_proxy *slot_of(const bs_proxies *proxies, uint64_t home)
{
    size_t place = place_of(proxies, home);
    while (proxies->slots[place].home && proxies->slots[place].home != home)
        place = (place + 1) & (proxies->capacity - 1);
    return &proxies->slots[place];
}

bs_proxy *bs_proxies_find(const bs_proxies *proxies, uint64_t home)
{
    bs_proxy *entry = proxies->count ? slot_of(proxies, home) : NULL;
    return entry && entry->home ? entry : NULL;
}

static void grow(bs_proxies *proxies)
{
    bs_proxies grown = {.capacity = proxies->capacity ? proxies->capacity * 2 : SMALLEST, .count = proxies->count};
    grown.slots = bs_must_realloc(NULL, grown.capacity, sizeof *grown.slots);
    memset(grown.slots, 0, grown.capacity * sizeof *grown.slots);
    for (size_t i = 0; i < proxies->capacity; i++)
        if (proxies->slots[i].home)
            *slot_of(&grown, proxies->slots[i].home) = proxies->slots[i];
    free(proxies->slots);
    *proxies = grown;
}

bs_proxy *bs_proxies_add(bs_proxies *proxies, uint64_t home)
{
    assert(home != 0 && !bs_proxies_find(proxies, home));
    if (proxies->count * 2 >= proxies->capacity)
        grow(proxies);
    bs_proxy *entry = slot_of(proxies, home);
    *entry = (bs_proxy){.home = home};
    proxies->count++;
    return entry;
}

/* Later entries move up, so that no search ends at the gap. */
void bs_proxies_remove(bs_proxies *proxies, bs_proxy *entry)
{
    const size_t mask = proxies->capacity - 1;
    size_t gap = (size_t)(entry - proxies->slots);
    for (size_t at = (gap + 1) & mask; proxies->slots[at].home; at = (at + 1) & mask) {
        size_t wanted = place_of(proxies, proxies->slots[at].home);
        if (((at - wanted) & mask) < ((at - gap) & mask))
            continue; /* its search does not pass the gap */
        proxies->slots[gap] = proxies->slots[at];
        gap = at;
    }
    proxies->slots[gap] = (bs_proxy){0};
    if (--proxies->count == 0)
        bs_proxies_free(proxies);
}

void bs_proxies_free(bs_proxies *proxies)
{
    free(proxies->slots);
    *proxies = (bs_proxies){0};
}
