/* Unique keys: the job that holds each key, and the keys themselves.
 *
 * A key is a hash of a tube and of what a client has chosen, or of a body. The hash is strong, so equal hashes mean equal
 * keys, and nobody can find two keys with one hash. The holder of a key is the first job that was added with it; others
 * exist only if the binlog was damaged.
 */
#ifndef BS_UNIQUE_KEYS_H
#define BS_UNIQUE_KEYS_H

#include "jobs/job.h"

/* All zeros is an empty set. Open addressing; does not own jobs. */
typedef struct {
    bs_job **slots;
    size_t count;
    size_t capacity; /* a power of two, or 0 */
    bs_key_secret secret;
} bs_unique_keys;

/* The sources of keys, which are never equal. */
typedef enum { BS_KEY_CHOSEN, BS_KEY_OF_BODY } bs_key_source;

/* Computes the key of these bytes in a tube. */
void bs_unique_key(uint8_t key[BS_KEY_BYTES], const char *tube, size_t tube_length, bs_key_source source,
                   const char *bytes, size_t length);

/* Returns the job that holds the key, or NULL. */
bs_job *bs_unique_holder(const bs_unique_keys *keys, const uint8_t key[BS_KEY_BYTES]);

/* Adds a job with a key, unless another job holds the key. Returns 0 or -ENOMEM. */
int bs_unique_add(bs_unique_keys *keys, bs_job *job);

/* Removes a job with a key, if it holds the key. */
void bs_unique_remove(bs_unique_keys *keys, const bs_job *job);

void bs_unique_free(bs_unique_keys *keys);

#endif
