/* A min-heap of items with a 64-bit key; equal keys are ordered by the item's own number.
 *
 * Keys are in the heap itself, so that sifting reads one array; four children share a cache line. Each item stores its
 * place in the heap (a uint32), so that it can be removed in O(log n). The heap does not own its items.
 */
#ifndef BS_HEAP_H
#define BS_HEAP_H

#include <stddef.h>
#include <stdint.h>

/* Where items of one kind store what the heap needs. */
typedef struct {
    size_t place;  /* offset of a uint32_t that the heap writes */
    size_t number; /* offset of a uint64_t, smaller first among equal keys */
} bs_heap_kind;

typedef struct {
    int64_t key;
    void *item;
} bs_heap_slot;

typedef struct {
    void *memory;        /* the allocation */
    bs_heap_slot *slots; /* in `memory`, aligned so that the children of each slot start a cache line */
    uint32_t count;
    uint32_t capacity;
} bs_heap;

/* The place of an item in no heap. */
#define BS_NO_PLACE UINT32_MAX

static inline void *bs_heap_first(const bs_heap *heap)
{
    return heap->count ? heap->slots[0].item : NULL;
}

/* INT64_MAX if empty. */
static inline int64_t bs_heap_first_key(const bs_heap *heap)
{
    return heap->count ? heap->slots[0].key : INT64_MAX;
}

void bs_heap_push(bs_heap *heap, const bs_heap_kind *kind, int64_t key, void *item);
void bs_heap_remove(bs_heap *heap, const bs_heap_kind *kind, uint32_t place);
void bs_heap_change(bs_heap *heap, const bs_heap_kind *kind, uint32_t place, int64_t key);
void bs_heap_free(bs_heap *heap);

#endif
