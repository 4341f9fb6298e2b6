/* A min-heap of jobs' priorities and ids.
 *
 * A job does not store its place in the heap, because each store is a cache miss in a large heap and costs more than
 * all other steps. So only the first entry can be removed (ready_jobs.h).
 */
#ifndef BS_PRIORITY_HEAP_H
#define BS_PRIORITY_HEAP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t id;
    uint32_t pri;
} bs_priority_entry;

/* All zeros is an empty heap. */
typedef struct {
    void *memory;               /* the allocation */
    bs_priority_entry *entries; /* in `memory`, aligned so that the children of each entry share a cache line */
    uint32_t count;
    uint32_t capacity;
} bs_priority_heap;

void bs_priority_push(bs_priority_heap *heap, bs_priority_entry entry);

/* Removes the first entry; there must be one. */
void bs_priority_pop(bs_priority_heap *heap);

/* Restores the order after the first `count` entries were replaced by any others. */
void bs_priority_rebuild(bs_priority_heap *heap, uint32_t count);
void bs_priority_free(bs_priority_heap *heap);

#endif
