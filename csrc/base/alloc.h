/* Allocations that cannot be refused.
 *
 * A put or a new connection is refused without memory. A job that changes its state cannot be refused, and dropping it
 * would lose it, so these functions abort the process; the binlog has the job.
 */
#ifndef BS_ALLOC_H
#define BS_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* As realloc(pointer, count * size), but aborts without memory. */
void *bs_must_realloc(void *pointer, size_t count, size_t size);

/* Returns an array with space for one more element: doubled if it is full. Aborts without memory. */
void *bs_must_fit(void *items, uint32_t count, uint32_t *capacity, size_t size);

enum { BS_CACHE_LINE = 64 };

/* Allocates `size` bytes at the start of a cache line; free them with free(). Large blocks use huge pages, because a
 * random access to an array much larger than the caches costs more in the page table than in the data. Aborts without
 * memory. */
void *bs_must_alloc_lines(size_t size);

#endif
