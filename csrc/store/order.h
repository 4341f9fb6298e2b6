/* Big-endian integers, as Java writes them. */
#ifndef HS_ORDER_H
#define HS_ORDER_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline int16_t hs_get16(const char *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return (int16_t)be16toh(value);
}

static inline int32_t hs_get32(const char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return (int32_t)be32toh(value);
}

static inline int64_t hs_get64(const char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return (int64_t)be64toh(value);
}

static inline void hs_put16(char *at, int16_t value)
{
    uint16_t bytes = htobe16((uint16_t)value);
    memcpy(at, &bytes, sizeof bytes);
}

static inline void hs_put32(char *at, int32_t value)
{
    uint32_t bytes = htobe32((uint32_t)value);
    memcpy(at, &bytes, sizeof bytes);
}

static inline void hs_put64(char *at, int64_t value)
{
    uint64_t bytes = htobe64((uint64_t)value);
    memcpy(at, &bytes, sizeof bytes);
}

#endif
