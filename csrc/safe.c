#include "safe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "entry.h"
#include "io.h"

/* Whoever reads a file between two of these has an end of zero or sees that the file has changed. */
void bs_safe_tell(bs_counters *counters, uint64_t file, uint64_t end)
{
    if (counters->binlog_safe_file != file) {
        __atomic_store_n(&counters->binlog_safe_end, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&counters->binlog_safe_file, file, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&counters->binlog_safe_end, end, __ATOMIC_RELEASE);
}

int bs_safe_place(const bs_counters *counters, uint64_t *file, uint64_t *end)
{
    *file = __atomic_load_n(&counters->binlog_safe_file, __ATOMIC_ACQUIRE);
    *end = __atomic_load_n(&counters->binlog_safe_end, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&counters->binlog_safe_file, __ATOMIC_ACQUIRE) == *file;
}

static int sync_file(const bs_binlog *binlog, uint32_t number)
{
    char name[32];
    (void)snprintf(name, sizeof name, "binlog.%u", number);
    int fd = bs_io.open(binlog->dir_fd, name, O_RDONLY);
    if (fd < 0)
        return -errno;
    int error = bs_io.datasync(fd) != 0 ? -errno : 0;
    (void)close(fd);
    return error;
}

int bs_safe_settle(const bs_binlog *binlog)
{
    int error = 0;
    for (uint32_t i = binlog->first_file; i < binlog->file_end && !error; i++)
        if (binlog->files[i].bytes > BS_ENTRY_HEADER)
            error = sync_file(binlog, binlog->files[i].number);
    return error;
}
