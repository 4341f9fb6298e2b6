#include "jobs/unique_keys.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "jobs/blake2s.h"

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

/* --- holders ---------------------------------------------------------------------------------------------- */

static const uint8_t *key_of_job(const void *job)
{
    return bs_job_attributes_of(job)->key;
}

bs_job *bs_unique_holder(const bs_key_table *holders, const uint8_t key[BS_KEY_BYTES])
{
    return bs_key_table_find(holders, key_of_job, key);
}

int bs_unique_add(bs_key_table *holders, bs_job *job)
{
    return bs_key_table_add(holders, key_of_job, job);
}

void bs_unique_remove(bs_key_table *holders, const bs_job *job)
{
    bs_key_table_remove(holders, key_of_job, job);
}

/* --- ended keys ------------------------------------------------------------------------------------------- */

static const bs_heap_kind ended_kind = {offsetof(bs_ended_key, place), offsetof(bs_ended_key, job)};

static const uint8_t *key_of_ended(const void *ended)
{
    return ((const bs_ended_key *)ended)->key;
}

bs_ended_key *bs_ended_find(const bs_ended_keys *keys, const uint8_t key[BS_KEY_BYTES])
{
    return bs_key_table_find(&keys->by_key, key_of_ended, key);
}

bs_ended_key *bs_ended_add(bs_ended_keys *keys, const uint8_t key[BS_KEY_BYTES], uint64_t job, uint32_t until)
{
    bs_ended_key *ended = bs_must_realloc(NULL, 1, sizeof *ended);
    *ended = (bs_ended_key){.job = job, .until = until};
    memcpy(ended->key, key, BS_KEY_BYTES);
    if (bs_key_table_add(&keys->by_key, key_of_ended, ended) != 0)
        abort();
    bs_heap_push(&keys->by_time, &ended_kind, until, ended);
    return ended;
}

void bs_ended_remove(bs_ended_keys *keys, bs_ended_key *ended)
{
    bs_key_table_remove(&keys->by_key, key_of_ended, ended);
    bs_heap_remove(&keys->by_time, &ended_kind, ended->place);
    free(ended);
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
    bs_key_table_free(&keys->by_key);
    bs_heap_free(&keys->by_time);
}
