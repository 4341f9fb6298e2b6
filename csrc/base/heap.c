#include "base/heap.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { CHILDREN = 4, SMALLEST = 4, SHRINK_ABOVE = 1024 };

/* The first child of slot i is slot 4i + 1. With this many unused slots before slot 0 it starts a cache line. */
enum { UNUSED = CHILDREN - 1 };
static_assert(CHILDREN * sizeof(bs_heap_slot) == BS_CACHE_LINE, "four children share a cache line");

static uint64_t number_of(const bs_heap_kind *kind, const void *item)
{
    return *(const uint64_t *)(const void *)((const char *)item + kind->number);
}

static bool before(const bs_heap_kind *kind, const bs_heap_slot *a, const bs_heap_slot *b)
{
    if (a->key != b->key)
        return a->key < b->key;
    return number_of(kind, a->item) < number_of(kind, b->item);
}

static uint32_t *place_of(const bs_heap_kind *kind, void *item)
{
    return (uint32_t *)(void *)((char *)item + kind->place);
}

static void put_at(bs_heap *heap, const bs_heap_kind *kind, uint32_t place, bs_heap_slot slot)
{
    heap->slots[place] = slot;
    *place_of(kind, slot.item) = place;
}

static void sift_up(bs_heap *heap, const bs_heap_kind *kind, uint32_t place, bs_heap_slot slot)
{
    while (place > 0) {
        uint32_t parent = (place - 1) / CHILDREN;
        if (!before(kind, &slot, &heap->slots[parent]))
            break;
        put_at(heap, kind, place, heap->slots[parent]);
        place = parent;
    }
    put_at(heap, kind, place, slot);
}

/* The items on the way get their places at the end: each store is a cache miss in a large heap, and on the way down it
 * would delay the loads after it. */
static void sift_down(bs_heap *heap, const bs_heap_kind *kind, uint32_t place, bs_heap_slot slot)
{
    uint32_t top = place;
    for (;;) {
        uint64_t first = (uint64_t)place * CHILDREN + 1;
        if (first >= heap->count)
            break;
        /* Prefetches the grandchildren, because the children of the least child are compared next. */
        uint64_t below = first * CHILDREN + 1;
        if (below + CHILDREN * CHILDREN <= heap->count)
            for (uint32_t i = 0; i < CHILDREN; i++)
                __builtin_prefetch(&heap->slots[below + i * CHILDREN]);
        uint32_t least = (uint32_t)first;
        uint64_t end = first + CHILDREN < heap->count ? first + CHILDREN : heap->count;
        for (uint32_t child = least + 1; child < end; child++)
            if (before(kind, &heap->slots[child], &heap->slots[least]))
                least = child;
        if (!before(kind, &heap->slots[least], &slot))
            break;
        heap->slots[place] = heap->slots[least];
        __builtin_prefetch(place_of(kind, heap->slots[place].item), 1);
        place = least;
    }
    put_at(heap, kind, place, slot);
    while (place > top) {
        place = (place - 1) / CHILDREN;
        *place_of(kind, heap->slots[place].item) = place;
    }
}

static void resize(bs_heap *heap, uint32_t capacity)
{
    bs_heap_slot *memory = bs_must_alloc_lines((UNUSED + (size_t)capacity) * sizeof *memory);
    if (heap->count)
        memcpy(memory + UNUSED, heap->slots, heap->count * sizeof *memory);
    free(heap->memory);
    heap->memory = memory;
    heap->slots = memory + UNUSED;
    heap->capacity = capacity;
}

void bs_heap_push(bs_heap *heap, const bs_heap_kind *kind, int64_t key, void *item)
{
    if (heap->count == heap->capacity) {
        assert(heap->count < UINT32_MAX / 2);
        resize(heap, heap->capacity ? heap->capacity * 2 : SMALLEST);
    }
    sift_up(heap, kind, heap->count++, (bs_heap_slot){key, item});
}

static void settle(bs_heap *heap, const bs_heap_kind *kind, uint32_t place, bs_heap_slot slot)
{
    if (place > 0 && before(kind, &slot, &heap->slots[(place - 1) / CHILDREN]))
        sift_up(heap, kind, place, slot);
    else
        sift_down(heap, kind, place, slot);
}

void bs_heap_remove(bs_heap *heap, const bs_heap_kind *kind, uint32_t place)
{
    assert(place < heap->count);
    *place_of(kind, heap->slots[place].item) = BS_NO_PLACE;
    bs_heap_slot last = heap->slots[--heap->count];
    if (place < heap->count)
        settle(heap, kind, place, last);
    if (heap->capacity > SHRINK_ABOVE && heap->count < heap->capacity / 4)
        resize(heap, heap->capacity / 2);
}

void bs_heap_change(bs_heap *heap, const bs_heap_kind *kind, uint32_t place, int64_t key)
{
    assert(place < heap->count);
    settle(heap, kind, place, (bs_heap_slot){key, heap->slots[place].item});
}

void bs_heap_free(bs_heap *heap)
{
    free(heap->memory);
    *heap = (bs_heap){0};
}
