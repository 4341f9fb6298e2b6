/* CRC-32 as in zlib, eight bytes at a time: the checksum of a body and of a record. */
#include <endian.h>
#include <pthread.h>
#include <string.h>

#include "store/store.h"

static uint32_t table[8][256];

static void fill_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320U : 0);
        table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int row = 1; row < 8; row++)
            table[row][byte] = (table[row - 1][byte] >> 8) ^ table[0][table[row - 1][byte] & 0xFF];
}

static uint32_t step(uint32_t crc, uint64_t word)
{
    word ^= crc;
    return table[7][word & 0xFF] ^ table[6][(word >> 8) & 0xFF] ^ table[5][(word >> 16) & 0xFF] ^
           table[4][(word >> 24) & 0xFF] ^ table[3][(word >> 32) & 0xFF] ^ table[2][(word >> 40) & 0xFF] ^
           table[1][(word >> 48) & 0xFF] ^ table[0][word >> 56];
}

uint32_t hs_crc32(uint32_t crc, const char *data, size_t length)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, fill_table); /* cannot fail: the control is valid */
    crc = ~crc;
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, data, sizeof word);
        crc = step(crc, le64toh(word));
    }
    for (; length > 0; data++, length--)
        crc = (crc >> 8) ^ table[0][(crc ^ (uint8_t)*data) & 0xFF];
    return ~crc;
}
