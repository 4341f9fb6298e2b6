/* Which boot of the machine this is: no page that nothing has synced outlives one. */
#ifndef BS_BOOT_H
#define BS_BOOT_H

#include <stdint.h>

enum { BS_BOOT_CHARS = 36 };

typedef struct {
    char id[BS_BOOT_CHARS + 1]; /* zeros where the system tells none: then all boots are one */
    uint64_t number;            /* the first 60 bits of it, 0: the system tells none */
} bs_boot;

bs_boot bs_boot_read(void);

#endif
