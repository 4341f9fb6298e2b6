#include "base/crc32c.h"

#include <stdbool.h>
#include <string.h>

static bs_crc_table table;
static bool by_processor;

/* When the library is loaded, before any thread runs: a check in each call would cost as much as a short sum. */
__attribute__((constructor)) static void prepare(void)
{
    bs_crc_fill(table, 0x82F63B78U);
#if defined(__x86_64__)
    by_processor = __builtin_cpu_supports("sse4.2") != 0;
#endif
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
    return ~bs_crc_update(table, ~crc, data, length);
}
