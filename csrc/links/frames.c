#include "links/frames.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "links/msgpack.h"

static uint64_t big_endian(const unsigned char *bytes, size_t count)
{
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++)
        value = value << 8 | bytes[i];
    return value;
}

/* --- where a value ends ----------------------------------------------------------------------------------- */

/* For first bytes 0xc0 to 0xdf: the bytes of the length, further bytes, and whether the length counts values. */
typedef struct {
    uint8_t length_bytes;
    uint8_t besides;
    uint8_t values_each; /* 0: the length is in bytes */
    uint8_t invalid;
} shape;

static const shape shapes[BS_MSGPACK_NEGATIVE - BS_MSGPACK_NIL] = {
    {0}, {.invalid = 1}, {0}, {0},                  /* nil, -, false, true */
    {1, 0, 0, 0}, {2, 0, 0, 0}, {4, 0, 0, 0},       /* bin */
    {1, 1, 0, 0}, {2, 1, 0, 0}, {4, 1, 0, 0},       /* ext, with its type */
    {0, 4, 0, 0}, {0, 8, 0, 0},                     /* float */
    {0, 1, 0, 0}, {0, 2, 0, 0}, {0, 4, 0, 0}, {0, 8, 0, 0}, /* uint */
    {0, 1, 0, 0}, {0, 2, 0, 0}, {0, 4, 0, 0}, {0, 8, 0, 0}, /* int */
    {0, 2, 0, 0}, {0, 3, 0, 0}, {0, 5, 0, 0}, {0, 9, 0, 0}, {0, 17, 0, 0}, /* fixext, with its type */
    {1, 0, 0, 0}, {2, 0, 0, 0}, {4, 0, 0, 0},       /* str */
    {2, 0, 1, 0}, {4, 0, 1, 0},                     /* array */
    {2, 0, 2, 0}, {4, 0, 2, 0},                     /* map */
};

/* Steps over one value, without its elements: 1; 0: its length is incomplete; -EBADMSG. */
static int step(bs_frame_scan *scan, const unsigned char *bytes, size_t left)
{
    unsigned first = bytes[0];
    uint64_t size = 1;
    uint64_t inside = 0;
    if (first < BS_MSGPACK_FIXMAP || first >= BS_MSGPACK_NEGATIVE) {
        ;
    } else if (first < BS_MSGPACK_FIXARRAY) {
        inside = 2 * (uint64_t)(first & 15);
    } else if (first < BS_MSGPACK_FIXSTR) {
        inside = first & 15;
    } else if (first < BS_MSGPACK_NIL) {
        size += first & 31;
    } else {
        const shape *is = &shapes[first - BS_MSGPACK_NIL];
        if (is->invalid)
            return -EBADMSG;
        if (left < 1 + (size_t)is->length_bytes)
            return 0;
        uint64_t length = big_endian(bytes + 1, is->length_bytes);
        size += (uint64_t)is->length_bytes + is->besides;
        if (is->values_each)
            inside = length * is->values_each;
        else
            size += length;
    }
    scan->at += size;
    scan->items += inside - 1;
    return 1;
}

int64_t bs_frame_end(bs_frame_scan *scan, const char *bytes, size_t length)
{
    if (scan->at == 0)
        scan->items = 1;
    while (scan->items > 0 && scan->at < length) {
        int result = step(scan, (const unsigned char *)bytes + scan->at, length - scan->at);
        if (result < 0)
            return result;
        if (result == 0)
            return 0;
        if (scan->at > BS_FRAME_MAX) /* also keeps `items` from overflowing */
            return -EBADMSG;
    }
    return scan->items == 0 && scan->at <= length ? (int64_t)scan->at : 0;
}

/* --- reading ---------------------------------------------------------------------------------------------- */

/* The rest of a complete frame. */
typedef struct {
    const unsigned char *at;
    bool failed;
} reader;

static uint64_t read_array(reader *from)
{
    unsigned first = *from->at++;
    if (first >= BS_MSGPACK_FIXARRAY && first < BS_MSGPACK_FIXSTR)
        return first & 15;
    size_t count = first == BS_MSGPACK_ARRAY16 ? 2 : 4;
    if (first != BS_MSGPACK_ARRAY16 && first != BS_MSGPACK_ARRAY16 + 1) {
        from->failed = true;
        return 0;
    }
    from->at += count;
    return big_endian(from->at - count, count);
}

static uint64_t read_number(reader *from)
{
    if (from->failed)
        return 0;
    unsigned first = *from->at++;
    if (first < BS_MSGPACK_FIXMAP)
        return first;
    bool is_signed = first >= BS_MSGPACK_INT8 && first <= BS_MSGPACK_INT64;
    if (!is_signed && (first < BS_MSGPACK_UINT8 || first > BS_MSGPACK_UINT64)) {
        from->failed = true;
        return 0;
    }
    size_t count = (size_t)1 << (first & 3);
    from->failed = is_signed && *from->at > 0x7f; /* negative */
    from->at += count;
    return big_endian(from->at - count, count);
}

static const char *read_bytes(reader *from, size_t *length)
{
    unsigned first = from->failed ? BS_MSGPACK_NIL : *from->at++;
    if (first < BS_MSGPACK_BIN8 || first > BS_MSGPACK_BIN8 + 2) {
        from->failed = true;
        return NULL;
    }
    size_t count = (size_t)1 << (first - BS_MSGPACK_BIN8);
    *length = (size_t)big_endian(from->at, count);
    const char *bytes = (const char *)from->at + count;
    from->at += count + *length;
    return bytes;
}

bs_frame bs_frame_read(const char *bytes, size_t length)
{
    static const uint8_t values_of[] = {
        [BS_FRAME_FEED] = 3, [BS_FRAME_CLOSE] = 2, [BS_FRAME_COUNT] = 6, [BS_FRAME_OUTPUT] = 3, [BS_FRAME_ENDED] = 2,
        [BS_FRAME_SYNC] = 2, [BS_FRAME_CENSUS] = 5, [BS_FRAME_SYNCED] = 2, [BS_FRAME_ARRIVED] = 2,
    };
    const bs_frame other = {.kind = BS_FRAME_OTHER};
    reader from = {(const unsigned char *)bytes, false};
    uint64_t values = read_array(&from);
    uint64_t kind = values > 1 ? read_number(&from) : UINT64_MAX;
    if (from.failed || kind >= sizeof values_of || values_of[kind] != values)
        return other;
    bs_frame frame = {.kind = (int)kind};
    if (kind == BS_FRAME_CENSUS) {
        frame.adopted = read_number(&from);
        frame.producers = read_number(&from);
        frame.workers = read_number(&from);
        frame.moves = read_number(&from);
        return from.failed ? other : frame;
    }
    if (kind != BS_FRAME_COUNT)
        frame.session = read_number(&from);
    if (values > 2)
        frame.bytes = read_bytes(&from, &frame.length);
    if (kind == BS_FRAME_COUNT) {
        frame.users = read_number(&from);
        frame.watchers = read_number(&from);
        frame.holds = read_number(&from);
        frame.number = read_number(&from);
    } else if (frame.session == 0) {
        from.failed = true;
    }
    if (from.failed)
        return other;
    assert(from.at == (const unsigned char *)bytes + length); /* bs_frame_end has counted these values */
    return frame;
}

/* --- writing ---------------------------------------------------------------------------------------------- */

static char *put_start(char *out, unsigned values, int kind)
{
    return bs_msgpack_number(bs_msgpack_array(out, values), (uint64_t)kind);
}

size_t bs_frame_write_head(char *out, int kind, uint64_t session, size_t length)
{
    return (size_t)(bs_msgpack_bytes(bs_msgpack_number(put_start(out, 3, kind), session), length) - out);
}

size_t bs_frame_write_end(char *out, int kind, uint64_t session)
{
    return (size_t)(bs_msgpack_number(put_start(out, 2, kind), session) - out);
}

size_t bs_frame_write_waited(char *out, uint64_t session, uint64_t token, int how)
{
    char *end = bs_msgpack_number(put_start(out, 4, BS_FRAME_WAITED), session);
    return (size_t)(bs_msgpack_number(bs_msgpack_number(end, token), (uint64_t)how) - out);
}

size_t bs_frame_write_count(char *out, const char *name, size_t length, uint32_t users,
                            uint32_t watchers, uint32_t holds, uint64_t number)
{
    char *end = bs_msgpack_bytes(put_start(out, 6, BS_FRAME_COUNT), length);
    memcpy(end, name, length);
    end = bs_msgpack_number(bs_msgpack_number(end + length, users), watchers);
    return (size_t)(bs_msgpack_number(bs_msgpack_number(end, holds), number) - out);
}

size_t bs_frame_write_census(char *out, uint64_t adopted, uint64_t producers, uint64_t workers, uint64_t moves)
{
    char *end = bs_msgpack_number(put_start(out, 5, BS_FRAME_CENSUS), adopted);
    end = bs_msgpack_number(bs_msgpack_number(end, producers), workers);
    return (size_t)(bs_msgpack_number(end, moves) - out);
}
