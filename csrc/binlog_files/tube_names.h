/* Numbers for tube names, in the order of first use. */
#ifndef BS_TUBE_NAMES_H
#define BS_TUBE_NAMES_H

#include <stdint.h>

/* Both texts are owned. */
typedef struct {
    char *name; /* `length` bytes */
    char *topic; /* of the history: `topic_length` bytes; NULL: not known */
    uint32_t length;
    uint8_t topic_length;
} bs_name;

/* Zero-initialized it is empty. */
typedef struct {
    bs_name *names;
    uint32_t count;
    uint32_t capacity;
    uint32_t *slots; /* open addressing: number + 1, or 0 */
    uint32_t slot_count;
    uint32_t last; /* of the last lookup */
} bs_names;

/* Returns the number of a name, adding it if there are fewer than `most`; else `most`. -ENOMEM. */
int64_t bs_names_number(bs_names *names, const char *name, uint32_t length, uint32_t most);
void bs_names_free(bs_names *names);

#endif
