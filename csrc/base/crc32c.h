/* CRC-32C (Castagnoli: reflected, polynomial 0x1EDC6F41, as in RFC 3720), with SSE 4.2 and PCLMULQDQ if the processor
 * has them. */
#ifndef BS_CRC32C_H
#define BS_CRC32C_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Continues from `crc`, the value of the bytes before, 0 at the start. */
uint32_t bs_crc32c(uint32_t crc, const void *data, size_t length);

/* --- CRCs of 32 bits with any polynomial, by eight tables, eight bytes at a time --- */

typedef uint32_t bs_crc_table[8][256];

/* `polynomial` is bit-reversed. */
static inline void bs_crc_fill(bs_crc_table table, uint32_t polynomial)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? polynomial : 0);
        table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int row = 1; row < 8; row++)
            table[row][byte] = (table[row - 1][byte] >> 8) ^ table[0][table[row - 1][byte] & 0xFF];
}

/* Continues a CRC without the inversions before and after. */
static inline uint32_t bs_crc_update(bs_crc_table table, uint32_t crc, const void *data, size_t length)
{
    const uint8_t *at = data;
    for (; length >= 8; at += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        word = le64toh(word) ^ crc;
        crc = table[7][word & 0xFF] ^ table[6][(word >> 8) & 0xFF] ^ table[5][(word >> 16) & 0xFF] ^
              table[4][(word >> 24) & 0xFF] ^ table[3][(word >> 32) & 0xFF] ^ table[2][(word >> 40) & 0xFF] ^
              table[1][(word >> 48) & 0xFF] ^ table[0][word >> 56];
    }
    for (; length > 0; at++, length--)
        crc = (crc >> 8) ^ table[0][(crc ^ *at) & 0xFF];
    return crc;
}

#endif
