/* Items found by their unique keys: an open-addressing table, which does not own the items. */
#ifndef BS_KEY_TABLE_H
#define BS_KEY_TABLE_H

#include <stddef.h>
#include <stdint.h>

enum { BS_KEY_BYTES = 16 };

/* Multipliers for the slots of keys, random in each process: nobody can choose keys that meet in one slot. */
typedef struct {
    uint64_t of_halves[2];
} bs_key_secret;

/* With the hash of the key: a search reads no item with another hash, and a growing table reads no item at all. */
typedef struct {
    uint64_t hash;
    void *item; /* NULL: the slot is empty */
} bs_key_slot;

/* All zeros is an empty table. */
typedef struct {
    bs_key_slot *slots;
    size_t count;
    size_t capacity; /* a power of two, or 0 */
    bs_key_secret secret;
} bs_key_table;

/* Returns the key of an item; each table has one such function. */
typedef const uint8_t *bs_key_of(const void *item);

/* Returns the item with the key, or NULL. */
void *bs_key_table_find(const bs_key_table *table, bs_key_of *key_of, const uint8_t key[BS_KEY_BYTES]);

/* Begins to load the slot of the key, for a search soon after. */
void bs_key_table_prefetch(const bs_key_table *table, const uint8_t key[BS_KEY_BYTES]);

/* Adds an item, unless another one has its key. Returns 0, or -ENOMEM if the table is full and cannot grow. */
int bs_key_table_add(bs_key_table *table, bs_key_of *key_of, void *item);

/* Removes an item, if the table has it. */
void bs_key_table_remove(bs_key_table *table, bs_key_of *key_of, const void *item);

void bs_key_table_free(bs_key_table *table);

#endif
