#include "jobs/ended_keys.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

enum { SMALLEST = 16 };

static const bs_heap_kind ended_kind = {offsetof(bs_ended_key, place), offsetof(bs_ended_key, job)};

static size_t home(const bs_ended_keys *keys, const uint8_t *key)
{
    return bs_key_slot(key, &keys->secret, keys->capacity);
}

static size_t after(const bs_ended_keys *keys, size_t slot)
{
    return (slot + 1) & (keys->capacity - 1);
}

/* Returns the slot of the key, or the empty slot where the search ends. */
static size_t seek(const bs_ended_keys *keys, const uint8_t *key)
{
    size_t slot = home(keys, key);
    while (keys->slots[slot] && memcmp(keys->slots[slot]->key, key, BS_KEY_BYTES) != 0)
        slot = after(keys, slot);
    return slot;
}

bs_ended_key *bs_ended_find(const bs_ended_keys *keys, const uint8_t key[BS_KEY_BYTES])
{
    return keys->capacity ? keys->slots[seek(keys, key)] : NULL;
}

/* Without memory the table stays as it is, and the result is false. */
static bool resize(bs_ended_keys *keys, size_t capacity)
{
    bs_ended_keys other = {calloc(capacity, sizeof *other.slots), capacity, keys->by_time, keys->secret};
    if (!other.slots)
        return false;
    for (uint32_t i = 0; i < keys->by_time.count; i++) {
        bs_ended_key *ended = keys->by_time.slots[i].item;
        other.slots[seek(&other, ended->key)] = ended;
    }
    free(keys->slots);
    *keys = other;
    return true;
}

bs_ended_key *bs_ended_add(bs_ended_keys *keys, const uint8_t key[BS_KEY_BYTES], uint64_t job, uint32_t until)
{
    if (keys->by_time.count + 1 > keys->capacity / 4 * 3 &&
        !resize(keys, keys->capacity ? 2 * keys->capacity : SMALLEST) && keys->by_time.count + 1 >= keys->capacity)
        abort();
    bs_ended_key *ended = bs_must_realloc(NULL, 1, sizeof *ended);
    *ended = (bs_ended_key){.job = job, .until = until};
    memcpy(ended->key, key, BS_KEY_BYTES);
    keys->slots[seek(keys, key)] = ended;
    bs_heap_push(&keys->by_time, &ended_kind, until, ended);
    return ended;
}

void bs_ended_remove(bs_ended_keys *keys, bs_ended_key *ended)
{
    size_t hole = seek(keys, ended->key);
    bs_heap_remove(&keys->by_time, &ended_kind, ended->place);
    /* Later records move back into the hole unless their home is after it. */
    for (size_t i = after(keys, hole); keys->slots[i]; i = after(keys, i)) {
        const size_t stray = (i - home(keys, keys->slots[i]->key)) & (keys->capacity - 1);
        if (stray < ((i - hole) & (keys->capacity - 1)))
            continue;
        keys->slots[hole] = keys->slots[i];
        hole = i;
    }
    keys->slots[hole] = NULL;
    free(ended);
    if (keys->capacity > SMALLEST && keys->by_time.count < keys->capacity / 8)
        (void)resize(keys, keys->capacity / 2);
}

uint32_t bs_ended_until(uint32_t window, int64_t wall)
{
    const uint64_t second = ((uint64_t)(wall > 0 ? wall : 0) + BS_SECOND - 1) / BS_SECOND + window;
    return second < UINT32_MAX ? (uint32_t)second : UINT32_MAX;
}

bool bs_ended_is_over(uint32_t until, int64_t wall)
{
    return (int64_t)until * BS_SECOND <= wall;
}

void bs_ended_free(bs_ended_keys *keys)
{
    for (uint32_t i = 0; i < keys->by_time.count; i++)
        free(keys->by_time.slots[i].item);
    free(keys->slots);
    bs_heap_free(&keys->by_time);
    *keys = (bs_ended_keys){0};
}
