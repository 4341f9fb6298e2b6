/* Keys of ended jobs within their window: a put with such a key inserts nothing.
 *
 * A key has at most one record. Times are seconds of the wall clock.
 */
#ifndef BS_ENDED_KEYS_H
#define BS_ENDED_KEYS_H

#include "base/heap.h"
#include "jobs/job.h"

typedef struct {
    uint8_t key[BS_KEY_BYTES];
    uint64_t job;   /* that had the key */
    uint32_t until; /* the key is free from this second on */
    uint32_t file;  /* number of the binlog file with its entry, or 0 */
    uint32_t place; /* in `by_time` */
} bs_ended_key;

/* All zeros is an empty set. It owns the records. */
typedef struct bs_ended_keys {
    bs_ended_key **slots; /* open addressing by key */
    size_t capacity;      /* a power of two, or 0 */
    bs_heap by_time;
    bs_key_secret secret;
} bs_ended_keys;

enum { BS_ENDED_KEY_MEMORY = 96 }; /* bytes of a record with its places in table and heap */

/* Returns the record of a key, or NULL. */
bs_ended_key *bs_ended_find(const bs_ended_keys *keys, const uint8_t key[BS_KEY_BYTES]);

/* Adds a record without a file. The key must have none. */
bs_ended_key *bs_ended_add(bs_ended_keys *keys, const uint8_t key[BS_KEY_BYTES], uint64_t job, uint32_t until);

/* Removes and frees a record. */
void bs_ended_remove(bs_ended_keys *keys, bs_ended_key *ended);

/* Returns the time until which a key is kept when its job ends at `wall` (nanoseconds). */
uint32_t bs_ended_until(uint32_t window, int64_t wall);

/* Returns whether a key that is kept until this second is free at `wall`. */
bool bs_ended_is_over(uint32_t until, int64_t wall);

/* Returns the record whose time ends first, or NULL. */
static inline bs_ended_key *bs_ended_first(const bs_ended_keys *keys)
{
    return bs_heap_first(&keys->by_time);
}

void bs_ended_free(bs_ended_keys *keys);

#endif
