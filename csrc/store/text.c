#include "store/text.h"

#include <string.h>

#include "store/store.h"

#define HIGH_BITS 0x8080808080808080U

enum { REPLACEMENT = 0xFFFD, NAME_END = 1, PAIR_END = 2 };

bool hs_slice_is(hs_slice slice, const char *text)
{
    return strlen(text) == slice.length && memcmp(slice.text, text, slice.length) == 0;
}

/* Takes the text before the next separator. */
static hs_slice take_part(hs_slice *rest, char separator)
{
    const char *end = memchr(rest->text, separator, rest->length);
    const hs_slice part = {rest->text, end ? (size_t)(end - rest->text) : rest->length};
    const size_t taken = part.length + (end ? 1 : 0);
    *rest = (hs_slice){rest->text + taken, rest->length - taken};
    return part;
}

bool hs_next_property(hs_slice *rest, hs_slice *name, hs_slice *value)
{
    while (rest->length > 0) {
        const hs_slice pair = take_part(rest, PAIR_END);
        const char *middle = memchr(pair.text, NAME_END, pair.length);
        if (!middle)
            continue;
        *name = (hs_slice){pair.text, (size_t)(middle - pair.text)};
        *value = (hs_slice){middle + 1, pair.length - name->length - 1};
        if (name->length > 0 && value->length > 0)
            return true;
    }
    return false;
}

bool hs_next_key(hs_slice *rest, hs_slice *key)
{
    while (rest->length > 0) {
        *key = take_part(rest, ' ');
        if (key->length > 0)
            return true;
    }
    return false;
}

int32_t hs_text_next(const char **at, const char *end)
{
    const char *start = *at;
    uint8_t lead = (uint8_t)*start;
    *at = start + 1;
    if (lead < 0x80)
        return lead;
    int more = lead >= 0xC2 && lead < 0xE0 ? 1 : lead >= 0xE0 && lead < 0xF0 ? 2 : lead >= 0xF0 && lead < 0xF5 ? 3 : 0;
    if (more == 0)
        return -1;
    int32_t code = lead & (0x3F >> more);
    for (int place = 1; place <= more; place++) {
        if (start + place >= end || ((uint8_t)start[place] & 0xC0) != 0x80)
            return -1;
        code = (code << 6) | ((uint8_t)start[place] & 0x3F);
    }
    bool longer = (more == 2 && code < 0x800) || (more == 3 && code < 0x10000);
    if (longer || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        return -1;
    *at = start + 1 + more;
    return code;
}

/* Returns the length of the ASCII prefix, rounded down to eight. */
static size_t ascii_prefix(const char *text, size_t length)
{
    size_t at = 0;
    for (; at + 8 <= length; at += 8) {
        uint64_t word;
        memcpy(&word, text + at, sizeof word);
        if (word & HIGH_BITS)
            break;
    }
    return at;
}

int hs_is_utf8(const char *text, size_t length)
{
    const char *at = text + ascii_prefix(text, length);
    const char *end = text + length;
    while (at < end)
        if (hs_text_next(&at, end) < 0)
            return 0;
    return 1;
}

int32_t hs_java_hash(int32_t seed, const char *text, size_t length)
{
    uint32_t hash = (uint32_t)seed;
    const char *at = text;
    const char *end = text + length;
    while (at < end) {
        if (!(*at & 0x80)) {
            hash = hash * 31 + (uint8_t)*at++;
            continue;
        }
        int32_t code = hs_text_next(&at, end);
        if (code < 0)
            code = REPLACEMENT;
        if (code >= 0x10000) {
            hash = hash * 31 + 0xD800U + (uint32_t)((code - 0x10000) >> 10);
            hash = hash * 31 + 0xDC00U + (uint32_t)((code - 0x10000) & 0x3FF);
        } else {
            hash = hash * 31 + (uint32_t)code;
        }
    }
    return (int32_t)hash;
}
