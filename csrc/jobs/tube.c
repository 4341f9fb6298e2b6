#include "jobs/tube.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { SMALLEST = 16 };

const bs_heap_kind bs_tube_kind = {offsetof(bs_tube, place), offsetof(bs_tube, number)};

/* FNV-1a with a final mix, because the table uses the low bits. */
static uint64_t hash_of(const char *name, size_t length)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    return hash ^ (hash >> 32);
}

static size_t bucket_of(const bs_tubes *tubes, uint64_t hash)
{
    return (size_t)hash & (tubes->capacity - 1);
}

static bs_tube *find(const bs_tubes *tubes, uint64_t hash, const char *name, size_t length)
{
    if (tubes->capacity == 0)
        return NULL;
    bs_tube *tube = tubes->buckets[bucket_of(tubes, hash)];
    while (tube && (tube->name_length != length || memcmp(tube->name, name, length) != 0))
        tube = tube->chain;
    return tube;
}

bs_tube *bs_tubes_find(const bs_tubes *tubes, const char *name, size_t length)
{
    return find(tubes, hash_of(name, length), name, length);
}

static bool resize(bs_tubes *tubes, size_t capacity)
{
    bs_tube **buckets = calloc(capacity, sizeof(bs_tube *));
    if (!buckets)
        return false;
    free(tubes->buckets);
    tubes->buckets = buckets;
    tubes->capacity = capacity;
    for (bs_tube *tube = tubes->first; tube; tube = tube->next) {
        size_t bucket = bucket_of(tubes, hash_of(tube->name, tube->name_length));
        tube->chain = buckets[bucket];
        buckets[bucket] = tube;
    }
    return true;
}

static bool reserve_slot(bs_tubes *tubes)
{
    if (tubes->free_count > 0 || tubes->slot_count < tubes->slot_capacity)
        return true;
    size_t capacity = tubes->slot_capacity; /* of both arrays */
    bs_tube **slots = bs_grow(tubes->slots, tubes->slot_count, &capacity, sizeof(bs_tube *));
    if (!slots)
        return false;
    tubes->slots = slots;
    uint32_t *free_slots = bs_grow(tubes->free_slots, tubes->slot_count, &tubes->slot_capacity, sizeof *free_slots);
    if (free_slots)
        tubes->free_slots = free_slots;
    return free_slots != NULL;
}

bs_tube *bs_tubes_get(bs_tubes *tubes, const char *name, size_t length, uint64_t *last_number)
{
    assert(length > 0 && length <= BS_TUBE_NAME_MAX);
    const uint64_t hash = hash_of(name, length);
    bs_tube *tube = find(tubes, hash, name, length);
    if (tube)
        return tube;
    if (tubes->count >= tubes->capacity && !resize(tubes, tubes->capacity ? tubes->capacity * 2 : SMALLEST))
        return NULL;
    if (!reserve_slot(tubes))
        return NULL;
    tube = calloc(1, sizeof *tube + length + 1);
    if (!tube)
        return NULL;
    memcpy(tube->name, name, length);
    tube->name_length = (uint8_t)length;
    tube->number = __atomic_add_fetch(last_number, 1, __ATOMIC_RELAXED);
    tube->place = BS_NO_PLACE;
    if (tubes->policies)
        tube->policy = bs_policies_find(tubes->policies, name, length);
    tube->expires = tube->policy ? tube->policy->expires : 0;
    tube->slot = tubes->free_count ? tubes->free_slots[--tubes->free_count] : tubes->slot_count++;
    tubes->slots[tube->slot] = tube;
    size_t bucket = bucket_of(tubes, hash);
    tube->chain = tubes->buckets[bucket];
    tubes->buckets[bucket] = tube;
    tube->previous = tubes->last;
    *(tubes->last ? &tubes->last->next : &tubes->first) = tube;
    tubes->last = tube;
    tubes->count++;
    return tube;
}

bs_job *bs_tube_any_job(const bs_tube *tube, unsigned states)
{
    bs_job *job = NULL;
    if (states >> BS_READY & 1)
        job = bs_ready_first(&tube->ready);
    if (!job && states >> BS_DELAYED & 1)
        job = bs_heap_first(&tube->delayed);
    if (!job && states >> BS_BURIED & 1)
        job = bs_heap_first(&tube->buried);
    return job;
}

void bs_tube_free(bs_tube *tube)
{
    if (tube->truncated)
        bs_tube_free(tube->truncated);
    bs_ready_free(&tube->ready);
    bs_heap_free(&tube->delayed);
    bs_heap_free(&tube->buried);
    bs_priority_free(&tube->expiring);
    free(tube->peer_refs);
    free(tube);
}

void bs_tubes_remove(bs_tubes *tubes, bs_tube *tube)
{
    assert(tube->jobs == 0 && tube->users == 0 && tube->watchers == 0 && tube->pins == 0);
    assert(tube->place == BS_NO_PLACE);
    bs_tube **link = &tubes->buckets[bucket_of(tubes, hash_of(tube->name, tube->name_length))];
    while (*link != tube)
        link = &(*link)->chain;
    *link = tube->chain;
    *(tube->previous ? &tube->previous->next : &tubes->first) = tube->next;
    *(tube->next ? &tube->next->previous : &tubes->last) = tube->previous;
    tubes->slots[tube->slot] = NULL;
    tubes->free_slots[tubes->free_count++] = tube->slot;
    tubes->count--;
    bs_tube_free(tube);
}

void bs_tubes_free(bs_tubes *tubes)
{
    for (bs_tube *tube = tubes->first, *next; tube; tube = next) {
        next = tube->next;
        bs_tube_free(tube);
    }
    free(tubes->buckets);
    free(tubes->slots);
    free(tubes->free_slots);
    *tubes = (bs_tubes){0};
}
