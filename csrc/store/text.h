/* Text of messages as Java sees it: UTF-8, properties and keys. */
#ifndef HS_TEXT_H
#define HS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of a text, not terminated; `text` is NULL if it is missing. */
typedef struct {
    const char *text;
    size_t length;
} hs_slice;

bool hs_slice_is(hs_slice slice, const char *text);

/* Takes the next property; pairs without a name or a value are dropped. Returns false if none is left. */
bool hs_next_property(hs_slice *rest, hs_slice *name, hs_slice *value);

/* Takes the next of the keys, which are separated by blanks. Returns false if none is left. */
bool hs_next_key(hs_slice *rest, hs_slice *key);

/* Takes one character from UTF-8 text. Returns its code point, or -1 for one invalid byte. */
int32_t hs_text_next(const char **at, const char *end);

#endif
