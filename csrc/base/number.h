/* Text written piece by piece, faster than snprintf. Each function returns the end of what it has written, without a
 * terminator. */
#ifndef BS_NUMBER_H
#define BS_NUMBER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Writes up to 20 digits. */
char *bs_write_number(char *out, uint64_t number);

static inline char *bs_write_bytes(char *out, const void *bytes, size_t length)
{
    memcpy(out, bytes, length);
    return out + length;
}

static inline char *bs_write_text(char *out, const char *text)
{
    return bs_write_bytes(out, text, strlen(text));
}

#endif
