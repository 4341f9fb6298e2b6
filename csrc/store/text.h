/* UTF-8 as Java sees it: as UTF-16 units. */
#ifndef HS_TEXT_H
#define HS_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Takes one character from UTF-8 text. Returns its code point, or -1 for one invalid byte. */
int32_t hs_text_next(const char **at, const char *end);

#endif
