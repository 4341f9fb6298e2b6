/* A set of shards. All zeros is an empty set. */
#ifndef BS_SHARD_SET_H
#define BS_SHARD_SET_H

#include <stdbool.h>
#include <stdint.h>

enum { BS_SHARD_WORDS = 4 }; /* 64 shards each, together at least BS_MAX_WORKERS */

typedef struct {
    uint64_t words[BS_SHARD_WORDS];
} bs_shard_set;

static inline void bs_shard_set_add(bs_shard_set *set, uint32_t shard)
{
    set->words[shard / 64] |= UINT64_C(1) << shard % 64;
}

static inline void bs_shard_set_remove(bs_shard_set *set, uint32_t shard)
{
    set->words[shard / 64] &= ~(UINT64_C(1) << shard % 64);
}

static inline bool bs_shard_set_has(const bs_shard_set *set, uint32_t shard)
{
    return set->words[shard / 64] >> shard % 64 & 1;
}

static inline void bs_shard_set_add_all(bs_shard_set *set, const bs_shard_set *others)
{
    for (uint32_t i = 0; i < BS_SHARD_WORDS; i++)
        set->words[i] |= others->words[i];
}

/* Returns the smallest shard from `from` on, -1 without any: for (s = next(set, 0); s >= 0; s = next(set, s + 1)). */
static inline int bs_shard_set_next(const bs_shard_set *set, int from)
{
    for (uint32_t i = (uint32_t)from / 64; i < BS_SHARD_WORDS; i++) {
        uint64_t left = set->words[i];
        if (i == (uint32_t)from / 64)
            left = left >> from % 64 << from % 64;
        if (left)
            return (int)i * 64 + __builtin_ctzll(left);
    }
    return -1;
}

static inline bool bs_shard_set_empty(const bs_shard_set *set)
{
    return bs_shard_set_next(set, 0) < 0;
}

#endif
