/* UTF-8 as Java sees it: as UTF-16 units. */
#ifndef HS_TEXT_H
#define HS_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Takes one character from the front of UTF-8. Returns its code point, or -1 for one byte that begins none. */
int32_t hs_text_next(const char **at, const char *end);

#endif
