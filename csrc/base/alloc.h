/* Growing arrays, and allocations that cannot be refused.
 *
 * A put or a new connection is refused without memory. A job that changes its state cannot be refused, and dropping it
 * would lose it, so the functions with `must` abort the process; the binlog has the job.
 */
#ifndef BS_ALLOC_H
#define BS_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* As realloc(pointer, count * size), but aborts without memory. */
void *bs_must_realloc(void *pointer, size_t count, size_t size);

/* Returns space for one more than `count` elements of `size` bytes: `memory`, or its content in a larger allocation,
 * which replaces it. NULL without memory, and then `memory` is unchanged. */
void *bs_grow(void *memory, size_t count, size_t *capacity, size_t size);
void *bs_must_grow(void *memory, size_t count, size_t *capacity, size_t size);

/* Like bs_must_grow, with 32-bit numbers. */
void *bs_must_grow_u32(void *items, uint32_t count, uint32_t *capacity, size_t size);

enum { BS_CACHE_LINE = 64 };

/* Allocates `size` bytes at the start of a cache line; free them with free(). Large blocks use huge pages, because a
 * random access to an array much larger than the caches costs more in the page table than in the data. Aborts without
 * memory. */
void *bs_must_alloc_lines(size_t size);

#endif
