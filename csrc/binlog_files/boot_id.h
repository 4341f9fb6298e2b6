/* Identifies the boot of the machine, because no unsynced page survives a boot. */
#ifndef BS_BOOT_H
#define BS_BOOT_H

#include <stdint.h>

enum { BS_BOOT_CHARS = 36 };

typedef struct {
    char id[BS_BOOT_CHARS + 1]; /* zeros if the system has no boot id: all boots are equal then */
    uint64_t number;            /* the first 60 bits of it; 0 if there is none */
} bs_boot;

bs_boot bs_boot_read(void);

#endif
