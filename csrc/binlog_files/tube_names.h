/* Names of tubes as small numbers, in the order in which they were first seen. */
#ifndef BS_NAMES_H
#define BS_NAMES_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *name; /* `length` bytes, owned */
    uint32_t length;
} bs_name;

/* All zeros has none. */
typedef struct {
    bs_name *names;
    uint32_t count;
    uint32_t capacity;
    uint32_t *slots; /* open addressing: number + 1, or 0 */
    uint32_t slot_count;
    uint32_t last; /* looked up last */
} bs_names;

/* The number of a name, which is added if it is new and there are fewer than `most`; else `most`. -ENOMEM. */
int64_t bs_names_number(bs_names *names, const char *name, uint32_t length, uint32_t most);
void bs_names_free(bs_names *names);

#endif
