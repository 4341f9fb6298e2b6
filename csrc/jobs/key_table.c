#include "jobs/key_table.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST = 16 };

static uint64_t hash_of(const bs_key_table *table, const uint8_t *key)
{
    uint64_t halves[2];
    memcpy(halves, key, sizeof halves);
    const bs_key_secret *secret = &table->secret;
    return halves[0] * (secret->of_halves[0] | 1) + halves[1] * (secret->of_halves[1] | 1);
}

static size_t home(const bs_key_table *table, uint64_t hash)
{
    return (size_t)(hash >> (__builtin_clzll(table->capacity) + 1));
}

static size_t after(const bs_key_table *table, size_t slot)
{
    return (slot + 1) & (table->capacity - 1);
}

/* Returns the slot of the key, or the empty slot where the search ends. */
static size_t seek(const bs_key_table *table, bs_key_of *key_of, const uint8_t *key, uint64_t hash)
{
    size_t at = home(table, hash);
    for (const bs_key_slot *slot; (slot = &table->slots[at])->item; at = after(table, at))
        if (slot->hash == hash && memcmp(key_of(slot->item), key, BS_KEY_BYTES) == 0)
            break;
    return at;
}

void *bs_key_table_find(const bs_key_table *table, bs_key_of *key_of, const uint8_t key[BS_KEY_BYTES])
{
    return table->capacity ? table->slots[seek(table, key_of, key, hash_of(table, key))].item : NULL;
}

void bs_key_table_prefetch(const bs_key_table *table, const uint8_t key[BS_KEY_BYTES])
{
    if (table->capacity)
        __builtin_prefetch(&table->slots[home(table, hash_of(table, key))]);
}

/* Without memory the table stays as it is, and the result is false. */
static bool resize(bs_key_table *table, size_t capacity)
{
    bs_key_table other = {calloc(capacity, sizeof *other.slots), table->count, capacity, table->secret};
    if (!other.slots)
        return false;
    for (size_t i = 0; i < table->capacity; i++) {
        if (!table->slots[i].item)
            continue;
        size_t at = home(&other, table->slots[i].hash);
        while (other.slots[at].item)
            at = after(&other, at);
        other.slots[at] = table->slots[i];
    }
    free(table->slots);
    *table = other;
    return true;
}

int bs_key_table_add(bs_key_table *table, bs_key_of *key_of, void *item)
{
    const bool is_dense = table->count + 1 > table->capacity / 4 * 3;
    /* A search ends at an empty slot, so one always stays empty. */
    if (is_dense && !resize(table, table->capacity ? 2 * table->capacity : SMALLEST) &&
        table->count + 1 >= table->capacity)
        return -ENOMEM;
    const uint64_t hash = hash_of(table, key_of(item));
    bs_key_slot *slot = &table->slots[seek(table, key_of, key_of(item), hash)];
    if (slot->item)
        return 0;
    *slot = (bs_key_slot){hash, item};
    table->count++;
    return 0;
}

void bs_key_table_remove(bs_key_table *table, bs_key_of *key_of, const void *item)
{
    if (!table->capacity)
        return;
    size_t hole = seek(table, key_of, key_of(item), hash_of(table, key_of(item)));
    if (table->slots[hole].item != item)
        return;
    /* Later items move back into the hole unless their home is after it. */
    for (size_t i = after(table, hole); table->slots[i].item; i = after(table, i)) {
        const size_t stray = (i - home(table, table->slots[i].hash)) & (table->capacity - 1);
        if (stray < ((i - hole) & (table->capacity - 1)))
            continue;
        table->slots[hole] = table->slots[i];
        hole = i;
    }
    table->slots[hole].item = NULL;
    table->count--;
    if (table->capacity > SMALLEST && table->count < table->capacity / 8)
        (void)resize(table, table->capacity / 2);
}

void bs_key_table_free(bs_key_table *table)
{
    free(table->slots);
    *table = (bs_key_table){0};
}
