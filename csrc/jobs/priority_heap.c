#include "jobs/priority_heap.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { CHILDREN = 4, SMALLEST = 4, SHRINK_ABOVE = 1024 };

/* The first child of entry i is entry 4i + 1. With this many unused entries before entry 0 it starts a cache line. */
enum { UNUSED = CHILDREN - 1 };
static_assert(CHILDREN * sizeof(bs_priority_entry) == BS_CACHE_LINE, "four children share a cache line");

static bool before(const bs_priority_entry *a, const bs_priority_entry *b)
{
    return a->pri != b->pri ? a->pri < b->pri : a->id < b->id;
}

static void sift_down(bs_priority_heap *heap, uint32_t place, bs_priority_entry entry)
{
    bs_priority_entry *entries = heap->entries;
    for (;;) {
        const uint64_t first = (uint64_t)place * CHILDREN + 1;
        if (first >= heap->count)
            break;
        /* Prefetches the grandchildren, because the children of the least child are compared next. */
        const uint64_t below = first * CHILDREN + 1;
        if (below + CHILDREN * CHILDREN <= heap->count)
            for (uint32_t i = 0; i < CHILDREN; i++)
                __builtin_prefetch(&entries[below + i * CHILDREN]);
        uint32_t least = (uint32_t)first;
        const uint64_t end = first + CHILDREN < heap->count ? first + CHILDREN : heap->count;
        for (uint32_t child = least + 1; child < end; child++)
            if (before(&entries[child], &entries[least]))
                least = child;
        if (!before(&entries[least], &entry))
            break;
        entries[place] = entries[least];
        place = least;
    }
    entries[place] = entry;
}

static void resize(bs_priority_heap *heap, uint32_t capacity)
{
    bs_priority_entry *memory = bs_must_alloc_lines((UNUSED + (size_t)capacity) * sizeof *memory);
    if (heap->count)
        memcpy(memory + UNUSED, heap->entries, heap->count * sizeof *memory);
    free(heap->memory);
    heap->memory = memory;
    heap->entries = memory + UNUSED;
    heap->capacity = capacity;
}

static void shrink(bs_priority_heap *heap)
{
    if (heap->capacity > SHRINK_ABOVE && heap->count < heap->capacity / 4)
        resize(heap, heap->capacity / 2);
}

void bs_priority_push(bs_priority_heap *heap, bs_priority_entry entry)
{
    if (heap->count == heap->capacity) {
        assert(heap->count < UINT32_MAX / 2);
        resize(heap, heap->capacity ? heap->capacity * 2 : SMALLEST);
    }
    uint32_t place = heap->count++;
    while (place > 0) {
        const uint32_t parent = (place - 1) / CHILDREN;
        if (!before(&entry, &heap->entries[parent]))
            break;
        heap->entries[place] = heap->entries[parent];
        place = parent;
    }
    heap->entries[place] = entry;
}

void bs_priority_pop(bs_priority_heap *heap)
{
    assert(heap->count > 0);
    const bs_priority_entry last = heap->entries[--heap->count];
    if (heap->count > 0)
        sift_down(heap, 0, last);
    shrink(heap);
}

void bs_priority_rebuild(bs_priority_heap *heap, uint32_t count)
{
    heap->count = count;
    for (uint32_t place = count / CHILDREN + 1; place-- > 0;)
        if (place < count)
            sift_down(heap, place, heap->entries[place]);
    shrink(heap);
}

void bs_priority_free(bs_priority_heap *heap)
{
    free(heap->memory);
    *heap = (bs_priority_heap){0};
}
