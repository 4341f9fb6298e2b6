#include "protocol/tube_name.h"

#include <stdint.h>

/* A bit for each byte that a name may have: letters, digits and - + / ; . $ _ ( ). */
static const uint64_t allowed[4] = {UINT64_C(0x0bffeb1000000000), UINT64_C(0x07fffffe87fffffe)};

size_t bs_tube_name_span(const char *text, size_t length)
{
    size_t span = 0;
    while (span < length) {
        uint8_t byte = (uint8_t)text[span];
        if (!(allowed[byte / 64] >> (byte % 64) & 1))
            break;
        span++;
    }
    return span;
}

bool bs_tube_name_valid(const char *name, size_t length)
{
    return length > 0 && length <= BS_TUBE_NAME_MAX && name[0] != '-' &&
           bs_tube_name_span(name, length) == length;
}
