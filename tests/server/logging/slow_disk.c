/* Preloaded into a server: delays each sync by SLOW_SYNC_MS and each write at an offset by SLOW_WRITE_MS, while the file
 * SLOW_WHILE exists. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void take_time(const char *name)
{
    const char *milliseconds = getenv(name);
    const char *path = getenv("SLOW_WHILE");
    if (milliseconds && path && access(path, F_OK) == 0)
        usleep((unsigned)atoi(milliseconds) * 1000);
}

int fdatasync(int fd)
{
    take_time("SLOW_SYNC_MS");
    return (int)syscall(SYS_fdatasync, fd);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
    take_time("SLOW_WRITE_MS");
    return syscall(SYS_pwrite64, fd, bytes, length, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset)
{
    return pwrite(fd, bytes, length, offset);
}
