#include "base/crc32c.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { POLYNOMIAL = 0x82F63B78, SHORT_LANE = 80, LONG_LANE = 320 }; /* bytes of a lane */

/* The factors that move a CRC over one lane and over two. */
typedef struct {
    uint32_t one;
    uint32_t two;
} lane_factors;

static bs_crc_table table;
static bool has_sse42;
static lane_factors short_lane, long_lane;

/* Returns x^bits modulo the polynomial, bit-reversed. */
static uint32_t power_of_x(uint32_t bits)
{
    uint32_t power = 0x80000000U;
    for (; bits > 0; bits--)
        power = (power >> 1) ^ (power & 1 ? (uint32_t)POLYNOMIAL : 0);
    return power;
}

/* 33 bits less: a product of bit-reversed factors is one bit too low, and the last CRC instruction adds 32. */
static lane_factors factors_of(uint32_t lane)
{
    return (lane_factors){power_of_x(8 * lane - 33), power_of_x(16 * lane - 33)};
}

/* When the library is loaded, before any thread runs: a check in each call would cost as much as a short sum. */
__attribute__((constructor)) static void prepare(void)
{
    bs_crc_fill(table, POLYNOMIAL);
    short_lane = factors_of(SHORT_LANE);
    long_lane = factors_of(LONG_LANE);
#if defined(__x86_64__)
    has_sse42 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
#endif
}

#if defined(__x86_64__)
#define SSE42 __attribute__((target("sse4.2,crc32,pclmul")))

SSE42 static inline uint64_t load(const unsigned char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

SSE42 static inline __m128i product(uint64_t crc, uint32_t factor)
{
    return _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), _mm_cvtsi64_si128(factor), 0);
}

/* Continues over three lanes at once, because the instruction has a latency of three cycles and a throughput of one. */
SSE42 static inline uint64_t update_lanes(uint64_t crc, const unsigned char *p, size_t lane,
                                             const lane_factors *factors)
{
    uint64_t second = 0, third = 0;
    for (const unsigned char *end = p + lane; p < end; p += 8) {
        crc = __builtin_ia32_crc32di(crc, load(p));
        second = __builtin_ia32_crc32di(second, load(p + lane));
        third = __builtin_ia32_crc32di(third, load(p + 2 * lane));
    }
    const __m128i moved = _mm_xor_si128(product(crc, factors->two), product(second, factors->one));
    return third ^ __builtin_ia32_crc32di(0, (uint64_t)_mm_cvtsi128_si64(moved));
}

SSE42 static uint32_t update_sse42(uint32_t crc, const unsigned char *p, size_t length)
{
    uint64_t wide = crc;
    for (; length >= 3 * LONG_LANE; p += 3 * LONG_LANE, length -= 3 * LONG_LANE)
        wide = update_lanes(wide, p, LONG_LANE, &long_lane);
    for (; length >= 3 * SHORT_LANE; p += 3 * SHORT_LANE, length -= 3 * SHORT_LANE)
        wide = update_lanes(wide, p, SHORT_LANE, &short_lane);
    for (; length >= 8; p += 8, length -= 8)
        wide = __builtin_ia32_crc32di(wide, load(p));
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
    if (has_sse42)
        return ~update_sse42(~crc, data, length);
#endif
    return ~bs_crc_update(table, ~crc, data, length);
}
