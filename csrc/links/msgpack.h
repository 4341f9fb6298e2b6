/* A msgpack writer: each number and length in as few bytes as possible.
 *
 * Every function writes at most BS_MSGPACK_MAX bytes at `out` and returns the end of its bytes. The caller provides the
 * space.
 */
#ifndef BS_MSGPACK_H
#define BS_MSGPACK_H

#include <stddef.h>
#include <stdint.h>

/* First bytes of values. */
enum {
    BS_MSGPACK_FIXMAP = 0x80,
    BS_MSGPACK_FIXARRAY = 0x90,
    BS_MSGPACK_FIXSTR = 0xa0,
    BS_MSGPACK_NIL = 0xc0,
    BS_MSGPACK_BIN8 = 0xc4,
    BS_MSGPACK_UINT8 = 0xcc,
    BS_MSGPACK_UINT64 = 0xcf,
    BS_MSGPACK_INT8 = 0xd0,
    BS_MSGPACK_INT64 = 0xd3,
    BS_MSGPACK_ARRAY16 = 0xdc,
    BS_MSGPACK_NEGATIVE = 0xe0
};

enum { BS_MSGPACK_MAX = 9 };

static inline char *bs_msgpack_big_endian(char *out, uint64_t value, size_t count)
{
    for (size_t i = count; i-- > 0; value >>= 8)
        out[i] = (char)(unsigned char)value;
    return out + count;
}

static inline char *bs_msgpack_number(char *out, uint64_t value)
{
    if (value < BS_MSGPACK_FIXMAP)
        return bs_msgpack_big_endian(out, value, 1);
    unsigned power = value <= UINT8_MAX ? 0 : value <= UINT16_MAX ? 1 : value <= UINT32_MAX ? 2 : 3;
    return bs_msgpack_big_endian(bs_msgpack_big_endian(out, BS_MSGPACK_UINT8 + power, 1), value, (size_t)1 << power);
}

static inline char *bs_msgpack_nil(char *out)
{
    return bs_msgpack_big_endian(out, BS_MSGPACK_NIL, 1);
}

/* The head of an array of `values` values, at most 65535. */
static inline char *bs_msgpack_array(char *out, unsigned values)
{
    if (values < BS_MSGPACK_FIXSTR - BS_MSGPACK_FIXARRAY)
        return bs_msgpack_big_endian(out, BS_MSGPACK_FIXARRAY + values, 1);
    return bs_msgpack_big_endian(bs_msgpack_big_endian(out, BS_MSGPACK_ARRAY16, 1), values, 2);
}

/* The head of a bin of `length` bytes, less than 1 << 32. */
static inline char *bs_msgpack_bytes(char *out, size_t length)
{
    unsigned power = length <= UINT8_MAX ? 0 : length <= UINT16_MAX ? 1 : 2;
    return bs_msgpack_big_endian(bs_msgpack_big_endian(out, BS_MSGPACK_BIN8 + power, 1), length, (size_t)1 << power);
}

#endif
