/* A growing byte buffer: appended at the end, taken from the front. Owns its memory; all zeros is empty. */
#ifndef BS_BYTES_H
#define BS_BYTES_H

#include <stddef.h>

typedef struct {
    char *memory;
    size_t start; /* of the bytes that are not taken */
    size_t end;
    size_t capacity;
} bs_bytes;

static inline size_t bs_bytes_length(const bs_bytes *bytes)
{
    return bytes->end - bytes->start;
}

static inline char *bs_bytes_data(const bs_bytes *bytes)
{
    return bytes->memory + bytes->start;
}

/* Returns space for `length` more bytes, or NULL; bs_bytes_extend appends them. */
char *bs_bytes_reserve(bs_bytes *bytes, size_t length);
void bs_bytes_extend(bs_bytes *bytes, size_t length);

/* 0 or -ENOMEM. */
int bs_bytes_append(bs_bytes *bytes, const void *data, size_t length);

/* Takes bytes from the front; frees the memory when none are left. */
void bs_bytes_take(bs_bytes *bytes, size_t length);

/* Takes all bytes and keeps the memory, because growing a buffer again and again would be slow. */
static inline void bs_bytes_clear(bs_bytes *bytes)
{
    bytes->start = bytes->end = 0;
}

void bs_bytes_free(bs_bytes *bytes);

#endif
