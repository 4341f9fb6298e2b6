#include "base/crc32c.h"

#include <stdbool.h>
#include <string.h>

static uint32_t table[8][256];
static bool by_processor;

/* When the library is loaded, before any thread runs: a check in each call would cost as much as a short sum. */
__attribute__((constructor)) static void prepare(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82F63B78U : crc >> 1;
        table[0][i] = crc;
    }
    for (int t = 1; t < 8; t++)
        for (uint32_t i = 0; i < 256; i++)
            table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 0xff];
#if defined(__x86_64__)
    by_processor = __builtin_cpu_supports("sse4.2") != 0;
#endif
}

static uint32_t one_by_one(uint32_t crc, const unsigned char *p, size_t length)
{
    while (length--)
        crc = crc >> 8 ^ table[0][(crc ^ *p++) & 0xff];
    return crc;
}

/* Eight bytes a step, with one table for each. */
static uint32_t by_table(uint32_t crc, const unsigned char *p, size_t length)
{
    for (; length >= 8; p += 8, length -= 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^ table[4][low >> 24] ^
              table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    }
    return one_by_one(crc, p, length);
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_sse42(uint32_t crc, const unsigned char *p, size_t length)
{
    uint64_t wide = crc;
    for (; length >= 8; p += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    if (length & 4) {
        uint32_t word;
        memcpy(&word, p, 4);
        crc = __builtin_ia32_crc32si(crc, word);
        p += 4;
    }
    if (length & 2) {
        uint16_t word;
        memcpy(&word, p, 2);
        crc = __builtin_ia32_crc32hi(crc, word);
        p += 2;
    }
    return length & 1 ? __builtin_ia32_crc32qi(crc, *p) : crc;
}
#endif

uint32_t bs_crc32c(uint32_t crc, const void *data, size_t length)
{
#if defined(__x86_64__)
    if (by_processor)
        return ~by_sse42(~crc, data, length);
#endif
    return ~by_table(~crc, data, length);
}
