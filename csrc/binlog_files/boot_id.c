#include "binlog_files/boot_id.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    unsigned high = 0;
    unsigned middle = 0;
    unsigned low = 0;
    (void)sscanf(boot.id, "%8x-%4x-%3x", &high, &middle, &low);
    boot.number = (uint64_t)high << 28 | middle << 12 | low;
    return boot;
}
