#include "jobs/unique_keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/blake2s.h"

enum { SMALLEST = 16 };

void bs_unique_key(uint8_t key[BS_KEY_BYTES], const char *tube, size_t tube_length, bs_key_source source,
                   const char *bytes, size_t length)
{
    const uint8_t separator = source == BS_KEY_CHOSEN ? 0 : 1; /* neither is in the name of a tube */
    bs_blake2s hash;
    bs_blake2s_begin(&hash, BS_KEY_BYTES);
    bs_blake2s_add(&hash, tube, tube_length);
    bs_blake2s_add(&hash, &separator, 1);
    bs_blake2s_add(&hash, bytes, length);
    bs_blake2s_end(&hash, key);
}

static const uint8_t *key_of(const bs_job *job)
{
    return bs_job_attributes_of(job)->key;
}

static size_t home(const bs_unique_keys *keys, const uint8_t *key)
{
    return bs_key_slot(key, &keys->secret, keys->capacity);
}

static size_t after(const bs_unique_keys *keys, size_t slot)
{
    return (slot + 1) & (keys->capacity - 1);
}

/* Returns the slot of the key, or the empty slot where the search ends. */
static size_t seek(const bs_unique_keys *keys, const uint8_t *key)
{
    size_t slot = home(keys, key);
    while (keys->slots[slot] && memcmp(key_of(keys->slots[slot]), key, BS_KEY_BYTES) != 0)
        slot = after(keys, slot);
    return slot;
}

bs_job *bs_unique_holder(const bs_unique_keys *keys, const uint8_t key[BS_KEY_BYTES])
{
    return keys->capacity ? keys->slots[seek(keys, key)] : NULL;
}

static int resize(bs_unique_keys *keys, size_t capacity)
{
    bs_unique_keys other = {calloc(capacity, sizeof *other.slots), keys->count, capacity, keys->secret};
    if (!other.slots)
        return -ENOMEM;
    for (size_t i = 0; i < keys->capacity; i++)
        if (keys->slots[i])
            other.slots[seek(&other, key_of(keys->slots[i]))] = keys->slots[i];
    free(keys->slots);
    *keys = other;
    return 0;
}

int bs_unique_add(bs_unique_keys *keys, bs_job *job)
{
    if (keys->count + 1 > keys->capacity / 4 * 3) {
        const int error = resize(keys, keys->capacity ? 2 * keys->capacity : SMALLEST);
        if (error)
            return error;
    }
    const size_t slot = seek(keys, key_of(job));
    if (keys->slots[slot])
        return 0;
    keys->slots[slot] = job;
    keys->count++;
    return 0;
}

void bs_unique_remove(bs_unique_keys *keys, const bs_job *job)
{
    size_t hole = keys->capacity ? seek(keys, key_of(job)) : 0;
    if (!keys->capacity || keys->slots[hole] != job)
        return;
    /* Later jobs move back into the hole unless their home is after it. */
    for (size_t i = after(keys, hole); keys->slots[i]; i = after(keys, i)) {
        const size_t stray = (i - home(keys, key_of(keys->slots[i]))) & (keys->capacity - 1);
        if (stray < ((i - hole) & (keys->capacity - 1)))
            continue;
        keys->slots[hole] = keys->slots[i];
        hole = i;
    }
    keys->slots[hole] = NULL;
    keys->count--;
    /* Without memory the table stays larger than needed. */
    if (keys->capacity > SMALLEST && keys->count < keys->capacity / 8)
        (void)resize(keys, keys->capacity / 2);
}

void bs_unique_free(bs_unique_keys *keys)
{
    free(keys->slots);
    *keys = (bs_unique_keys){0};
}
