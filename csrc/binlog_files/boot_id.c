#include "binlog_files/boot_id.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DIGITS = 15, HEX = 16 };

static uint64_t number_of(const char *id)
{
    char digits[DIGITS + 1] = "";
    for (size_t count = 0; *id != '\0' && count < DIGITS; id++)
        if (*id != '-')
            digits[count++] = *id;
    return strtoull(digits, NULL, HEX);
}

bs_boot bs_boot_read(void)
{
    bs_boot boot = {.number = 0};
    memset(boot.id, '0', BS_BOOT_CHARS);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return boot;
    char text[BS_BOOT_CHARS];
    if (read(fd, text, sizeof text) == (ssize_t)sizeof text)
        memcpy(boot.id, text, sizeof text);
    (void)close(fd);
    boot.number = number_of(boot.id);
    return boot;
}
