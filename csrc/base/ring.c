#include "base/ring.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void *bs_ring_must_grow(void *ring, uint32_t *head, uint32_t *capacity, uint32_t smallest, size_t size)
{
    const uint32_t before = *capacity;
    const uint32_t larger = before ? before * 2 : smallest;
    if (larger <= before)
        abort();
    char *grown = bs_must_realloc(NULL, larger, size);
    if (before > 0) {
        const char *old = ring;
        const size_t first = bs_ring_at(*head, 0, before);
        const size_t behind = before - first; /* up to the end of the old memory */
        memcpy(grown, old + first * size, behind * size);
        memcpy(grown + behind * size, old, first * size);
    }
    free(ring);
    *head = 0;
    *capacity = larger;
    return grown;
}
