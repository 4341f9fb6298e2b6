/* Valid names of tubes (docs/protocol.md, Input). */
#ifndef BS_TUBE_NAME_H
#define BS_TUBE_NAME_H

#include <stdbool.h>
#include <stddef.h>

enum { BS_TUBE_NAME_MAX = 200 };

/* Returns how many leading bytes are allowed in a name. */
size_t bs_tube_name_span(const char *text, size_t length);

bool bs_tube_name_valid(const char *name, size_t length);

#endif
