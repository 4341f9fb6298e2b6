/* The memory of a ring buffer. The owner keeps memory, head, count and capacity. */
#ifndef BS_RING_H
#define BS_RING_H

#include <stddef.h>
#include <stdint.h>

/* Returns the position of an element; `capacity` is a power of two. */
static inline uint32_t bs_ring_at(uint32_t head, uint32_t index, uint32_t capacity)
{
    return (head + index) & (capacity - 1);
}

/* Doubles a full ring of elements of `size` bytes, or allocates `smallest`. Returns the new memory, with head 0, and
 * frees the old. Aborts without memory. */
void *bs_ring_must_grow(void *ring, uint32_t *head, uint32_t *capacity, uint32_t smallest, size_t size);

#endif
