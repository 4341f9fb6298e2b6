/* Memory of a ring: a queue in an array whose first may lie anywhere in it and that goes on at its front.
 *
 * Whoever has a ring keeps its memory, where its first is, how many there are and how many have room.
 */
#ifndef BS_RING_H
#define BS_RING_H

#include <stddef.h>
#include <stdint.h>

/* Where the one lies that `index` others are before; `capacity` is a power of two. */
static inline uint32_t bs_ring_at(uint32_t head, uint32_t index, uint32_t capacity)
{
    return (head + index) & (capacity - 1);
}

/* Twice the room, or `smallest` if there was none, for a full ring of things of `size` bytes: the memory that takes the
 * place of `ring`, which is freed. The first is at 0 then. Ends the process by abort() rather than fail. */
void *bs_ring_must_grow(void *ring, uint32_t *head, uint32_t *capacity, uint32_t smallest, size_t size);

#endif
