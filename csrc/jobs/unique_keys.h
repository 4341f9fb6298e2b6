/* Unique keys: the job that holds each key, and the keys of ended jobs within their window.
 *
 * A key is a hash of a tube and of what a client has chosen, or of a body. The hash is strong, so equal hashes mean equal
 * keys, and nobody can find two keys with one hash.
 */
#ifndef BS_UNIQUE_KEYS_H
#define BS_UNIQUE_KEYS_H

#include "base/heap.h"
#include "jobs/job.h"
#include "jobs/key_table.h"

/* The sources of keys, which are never equal. */
typedef enum { BS_KEY_CHOSEN, BS_KEY_OF_BODY } bs_key_source;

/* Computes the key of these bytes in a tube. */
void bs_unique_key(uint8_t key[BS_KEY_BYTES], const char *tube, size_t tube_length, bs_key_source source,
                   const char *bytes, size_t length);

/* --- holders ---------------------------------------------------------------------------------------------- */

/* Returns the job that holds the key, or NULL. */
bs_job *bs_unique_holder(const bs_key_table *holders, const uint8_t key[BS_KEY_BYTES]);

/* Lets a job with a key hold it, unless another one does, as after damage of the binlog. Returns 0 or -ENOMEM. */
int bs_unique_add(bs_key_table *holders, bs_job *job);

/* Removes a job with a key, if it holds the key. */
void bs_unique_remove(bs_key_table *holders, const bs_job *job);

/* --- ended keys ------------------------------------------------------------------------------------------- */

/* The key of an ended job within its window: a put with such a key inserts nothing. Times are of the wall clock. */
typedef struct {
    uint8_t key[BS_KEY_BYTES];
    uint64_t job;   /* that had the key */
    uint32_t until; /* the key is free from this second on */
    uint32_t file;  /* number of the binlog file with its entry, or 0 */
    uint32_t place; /* in `by_time` */
} bs_ended_key;

/* All zeros is an empty set. It owns the records, at most one per key. */
typedef struct bs_ended_keys {
    bs_key_table by_key;
    bs_heap by_time;
} bs_ended_keys;

enum { BS_ENDED_KEY_MEMORY = 112 }; /* bytes of a record with its places in table and heap */

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
