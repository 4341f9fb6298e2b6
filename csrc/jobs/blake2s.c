#include "jobs/blake2s.h"

#include <string.h>

enum { ROUNDS = 10, WORDS = 16 };

static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const uint8_t order[ROUNDS][WORDS] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static uint32_t rotate(uint32_t word, unsigned bits)
{
    return word >> bits | word << (32 - bits);
}

static uint32_t read_word(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The function G of the RFC. */
static inline __attribute__((always_inline)) void mix(uint32_t v[WORDS], const size_t at[4], uint32_t x, uint32_t y)
{
    uint32_t *a = &v[at[0]], *b = &v[at[1]], *c = &v[at[2]], *d = &v[at[3]];
    *a += *b + x;
    *d = rotate(*d ^ *a, 16);
    *c += *d;
    *b = rotate(*b ^ *c, 12);
    *a += *b + y;
    *d = rotate(*d ^ *a, 8);
    *c += *d;
    *b = rotate(*b ^ *c, 7);
}

static void compress(bs_blake2s *hash, const uint8_t *block, uint64_t bytes, uint32_t last)
{
    static const size_t at[8][4] = {{0, 4, 8, 12},  {1, 5, 9, 13},  {2, 6, 10, 14}, {3, 7, 11, 15},
                                    {0, 5, 10, 15}, {1, 6, 11, 12}, {2, 7, 8, 13},  {3, 4, 9, 14}};
    uint32_t message[WORDS], v[WORDS];
    for (size_t i = 0; i < WORDS; i++)
        message[i] = read_word(block + 4 * i);
    memcpy(v, hash->state, sizeof hash->state);
    memcpy(v + 8, initial, sizeof initial);
    v[12] ^= (uint32_t)(bytes & UINT32_MAX);
    v[13] ^= (uint32_t)(bytes >> 32);
    v[14] ^= last;
    /* So that the indexes are constants, and v stays in registers: 0.19 us instead of 0.48. */
#pragma GCC unroll 10
    for (size_t round = 0; round < ROUNDS; round++)
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; i++)
            mix(v, at[i], message[order[round][2 * i]], message[order[round][2 * i + 1]]);
    for (size_t i = 0; i < 8; i++)
        hash->state[i] ^= v[i] ^ v[i + 8];
}

void bs_blake2s_begin(bs_blake2s *hash, size_t digest)
{
    *hash = (bs_blake2s){.digest = digest};
    memcpy(hash->state, initial, sizeof initial);
    hash->state[0] ^= 0x01010000 ^ (uint32_t)digest;
}

void bs_blake2s_add(bs_blake2s *hash, const void *data, size_t length)
{
    const uint8_t *from = data;
    while (length > 0) {
        /* The last block, which may be full, is compressed by bs_blake2s_end. */
        if (hash->filled == BS_BLAKE2S_BLOCK) {
            hash->bytes += BS_BLAKE2S_BLOCK;
            compress(hash, hash->block, hash->bytes, 0);
            hash->filled = 0;
        }
        const size_t space = BS_BLAKE2S_BLOCK - hash->filled;
        const size_t piece = length < space ? length : space;
        memcpy(hash->block + hash->filled, from, piece);
        hash->filled += piece;
        from += piece;
        length -= piece;
    }
}

void bs_blake2s_end(bs_blake2s *hash, uint8_t *digest)
{
    memset(hash->block + hash->filled, 0, BS_BLAKE2S_BLOCK - hash->filled);
    compress(hash, hash->block, hash->bytes + hash->filled, UINT32_MAX);
    for (size_t i = 0; i < hash->digest; i++)
        digest[i] = (uint8_t)(hash->state[i / 4] >> (8 * (i % 4)) & 0xff);
}
