/* What may be the name of a tube (docs/protocol.md, Input). */
#ifndef BS_TUBE_NAME_H
#define BS_TUBE_NAME_H

#include <stdbool.h>
#include <stddef.h>

enum { BS_TUBE_NAME_MAX = 200 };

/* How many leading bytes are allowed in a tube's name. */
size_t bs_tube_name_span(const char *text, size_t length);

/* May this be a tube's name? */
bool bs_tube_name_valid(const char *name, size_t length);

#endif
