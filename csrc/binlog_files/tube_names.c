#include "binlog_files/tube_names.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"

enum { FIRST = 64 };

static bool is_name(const bs_name *known, const char *name, uint32_t length)
{
    return known->length == length && memcmp(known->name, name, length) == 0;
}

static void enter(bs_names *names, uint32_t number)
{
    const bs_name *name = &names->names[number];
    uint32_t at = bs_crc32c(0, name->name, name->length) & (names->slot_count - 1);
    while (names->slots[at])
        at = (at + 1) & (names->slot_count - 1);
    names->slots[at] = number + 1;
}

static int grow(bs_names *names)
{
    if (names->count < names->capacity)
        return 0;
    uint32_t capacity = names->capacity ? names->capacity * 2 : FIRST;
    bs_name *grown = realloc(names->names, capacity * sizeof *grown);
    if (!grown)
        return -ENOMEM;
    names->names = grown;
    uint32_t *slots = calloc(capacity * 2U, sizeof *slots);
    if (!slots)
        return -ENOMEM;
    free(names->slots);
    names->slots = slots;
    names->slot_count = capacity * 2;
    names->capacity = capacity;
    for (uint32_t number = 0; number < names->count; number++)
        enter(names, number);
    return 0;
}

int64_t bs_names_number(bs_names *names, const char *name, uint32_t length, uint32_t most)
{
    if (names->count > 0 && is_name(&names->names[names->last], name, length))
        return names->last;
    for (uint32_t at = names->slot_count ? bs_crc32c(0, name, length) & (names->slot_count - 1) : 0;
         names->slot_count && names->slots[at]; at = (at + 1) & (names->slot_count - 1))
        if (is_name(&names->names[names->slots[at] - 1], name, length))
            return names->last = names->slots[at] - 1;
    if (names->count >= most)
        return most;
    char *copy = grow(names) == 0 ? malloc(length) : NULL;
    if (!copy)
        return -ENOMEM;
    memcpy(copy, name, length);
    names->names[names->count] = (bs_name){.name = copy, .length = length};
    enter(names, names->count);
    return names->last = names->count++;
}

void bs_names_free(bs_names *names)
{
    for (uint32_t i = 0; i < names->count; i++) {
        free(names->names[i].name);
        free(names->names[i].topic);
    }
    free(names->names);
    free(names->slots);
    *names = (bs_names){0};
}
