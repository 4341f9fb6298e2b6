#include "base/bytes.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST = 256 };

char *bs_bytes_reserve(bs_bytes *bytes, size_t length)
{
    const size_t kept = bs_bytes_length(bytes);
    if (bytes->capacity - bytes->end < length && bytes->start > 0 && bytes->start >= kept) {
        memmove(bytes->memory, bs_bytes_data(bytes), kept);
        bytes->start = 0;
        bytes->end = kept;
    }
    if (bytes->capacity - bytes->end >= length)
        return bytes->memory + bytes->end;
    size_t capacity = bytes->capacity ? bytes->capacity : SMALLEST;
    while (capacity - bytes->end < length) {
        if (capacity > SIZE_MAX / 2)
            return NULL;
        capacity *= 2;
    }
    char *memory = realloc(bytes->memory, capacity);
    if (!memory)
        return NULL;
    bytes->memory = memory;
    bytes->capacity = capacity;
    return memory + bytes->end;
}

void bs_bytes_extend(bs_bytes *bytes, size_t length)
{
    assert(bytes->capacity - bytes->end >= length);
    bytes->end += length;
}

int bs_bytes_append(bs_bytes *bytes, const void *data, size_t length)
{
    if (length == 0)
        return 0;
    char *space = bs_bytes_reserve(bytes, length);
    if (!space)
        return -ENOMEM;
    memcpy(space, data, length);
    bytes->end += length;
    return 0;
}

void bs_bytes_take(bs_bytes *bytes, size_t length)
{
    assert(length <= bs_bytes_length(bytes));
    bytes->start += length;
    if (bytes->start == bytes->end)
        bs_bytes_free(bytes);
}

void bs_bytes_free(bs_bytes *bytes)
{
    free(bytes->memory);
    *bytes = (bs_bytes){0};
}
