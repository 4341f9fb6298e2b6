/* Lists the files of a binlog folder. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file_io.h"
#include "binlog/preallocation.h"
#include "recovery/recovery_state.h"

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Counts a file that the archiver has yet to read. */
static void count_done_file(bs_binlog *binlog, const char *name)
{
    struct stat status;
    if (fstatat(binlog->dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return; /* the archiver has just removed it */
    binlog->done_files++;
    binlog->done_bytes += (int64_t)status.st_size;
}

int bs_recovery_list(bs_binlog *binlog, bs_file_list *list)
{
    *list = (bs_file_list){0};
    binlog->done_files = 0;
    binlog->done_bytes = 0;
    int fd = openat(binlog->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder)
        return -errno;
    size_t capacity = 0;
    for (;;) {
        errno = 0;
        const struct dirent *item = readdir(folder);
        if (!item)
            break;
        const char *suffix;
        const uint32_t number = bs_number_of_file(item->d_name, &suffix);
        if (number == 0)
            continue;
        if (strcmp(suffix, ".new") == 0)
            (void)unlinkat(binlog->dir_fd, item->d_name, 0); /* the next file of its name replaces it in any case */
        const bool is_done = strncmp(suffix, BS_DONE_SUFFIX, sizeof BS_DONE_SUFFIX - 1) == 0;
        if (is_done)
            count_done_file(binlog, item->d_name);
        const bool is_bad = strncmp(suffix, BS_BAD_SUFFIX, sizeof BS_BAD_SUFFIX - 1) == 0;
        if ((is_done || is_bad) && number > list->highest_renamed)
            list->highest_renamed = number;
        if (*suffix)
            continue;
        list->numbers = bs_must_grow(list->numbers, list->count, &capacity, sizeof *list->numbers);
        list->numbers[list->count++] = number;
    }
    const int error = -errno; /* of readdir: with a part of its files the folder must not be opened */
    (void)closedir(folder);
    if (list->count > 1)
        qsort(list->numbers, list->count, sizeof *list->numbers, compare_numbers);
    return error;
}
