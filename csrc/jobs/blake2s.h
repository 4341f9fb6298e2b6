/* BLAKE2s without a key (RFC 7693). */
#ifndef BS_BLAKE2S_H
#define BS_BLAKE2S_H

#include <stddef.h>
#include <stdint.h>

enum { BS_BLAKE2S_BLOCK = 64, BS_BLAKE2S_MAX = 32 };

/* One computation. */
typedef struct {
    uint32_t state[8];
    uint64_t bytes; /* in the blocks before `block` */
    size_t filled;  /* bytes of `block` */
    size_t digest;
    uint8_t block[BS_BLAKE2S_BLOCK];
} bs_blake2s;

/* Begins a digest of 1 to BS_BLAKE2S_MAX bytes. */
void bs_blake2s_begin(bs_blake2s *hash, size_t digest);

void bs_blake2s_add(bs_blake2s *hash, const void *data, size_t length);

/* Writes the digest. */
void bs_blake2s_end(bs_blake2s *hash, uint8_t *digest);

#endif
