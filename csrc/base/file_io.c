#include "base/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"

/* The injected fault. */
static struct {
    atomic_uint mask;
    atomic_llong countdown; /* calls of the mask until the failing one; 0 or less: none */
    atomic_int error;
    atomic_bool lasting;
    atomic_llong calls[BS_IO_CALLS];
} fault;

void bs_io_fail(unsigned mask, int64_t nth, int error, int lasting)
{
    atomic_store(&fault.mask, 0);
    atomic_store(&fault.countdown, nth);
    atomic_store(&fault.error, error);
    atomic_store(&fault.lasting, lasting != 0);
    if (nth > 0)
        atomic_store(&fault.mask, mask);
}

int64_t bs_io_calls(int kind)
{
    return kind >= 0 && kind < BS_IO_CALLS ? atomic_load(&fault.calls[kind]) : -EINVAL;
}

/* Counts a call. Returns 0, or the negative errno with which it must fail. */
static int injected(int kind)
{
    atomic_fetch_add_explicit(&fault.calls[kind], 1, memory_order_relaxed);
    if (!(atomic_load_explicit(&fault.mask, memory_order_relaxed) & (1U << kind)))
        return 0;
    long long left = atomic_fetch_sub(&fault.countdown, 1);
    return left > 1 || (left < 1 && !atomic_load(&fault.lasting)) ? 0 : -atomic_load(&fault.error);
}

static int result_of(int returned)
{
    return returned < 0 ? -errno : returned;
}

/* Never writes through a link, and reads only through those of folder.h: the owner of a folder could make a server of
 * root read or write any file. */
int bs_io_open(int dir_fd, const char *name, int flags)
{
    int error = injected(BS_IO_OPEN);
    if (error)
        return error;
    int fd = result_of(openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600));
    return fd == -ELOOP && (flags & O_ACCMODE) == O_RDONLY ? bs_open_linked(dir_fd, name, flags) : fd;
}

int bs_io_write_all(int kind, int fd, const char *data, size_t length, off_t offset)
{
    while (length > 0) {
        int error = injected(kind); /* as on a full or broken disk, part of the data is written */
        ssize_t written = pwrite(fd, data, error ? length / 2 : length, offset);
        if (!error && written <= 0)
            error = written < 0 ? -errno : -EIO;
        if (error == -EINTR)
            continue;
        if (error)
            return error;
        data += written;
        length -= (size_t)written;
        offset += written;
    }
    return 0;
}

ssize_t bs_io_read(int fd, void *data, size_t length, off_t offset)
{
    ssize_t got;
    do {
        got = injected(BS_IO_READ);
        if (got == 0 && (got = pread(fd, data, length, offset)) < 0)
            got = -errno;
    } while (got == -EINTR);
    return got;
}

void bs_io_read_ahead(int fd)
{
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
}

int bs_io_datasync(int fd)
{
    int error = injected(BS_IO_DATASYNC);
    return error ? error : result_of(fdatasync(fd));
}

int bs_io_sync(int fd)
{
    int error = injected(BS_IO_SYNC);
    return error ? error : result_of(fsync(fd));
}

int bs_io_truncate(int fd, off_t length)
{
    int error = injected(BS_IO_TRUNCATE);
    return error ? error : result_of(ftruncate(fd, length));
}

int bs_io_rename(int dir_fd, const char *from, const char *to)
{
    int error = injected(BS_IO_RENAME);
    return error ? error : result_of(renameat(dir_fd, from, dir_fd, to));
}

int bs_io_link(int dir_fd, const char *from, const char *to)
{
    int error = injected(BS_IO_LINK);
    return error ? error : result_of(linkat(dir_fd, from, dir_fd, to, 0));
}

int bs_io_unlink(int dir_fd, const char *name)
{
    int error = injected(BS_IO_UNLINK);
    return error ? error : result_of(unlinkat(dir_fd, name, 0));
}

int bs_io_lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int error = injected(BS_IO_LOCK);
    return error ? error : result_of(fcntl(fd, F_SETLK, &whole));
}

bs_file_name bs_name_of_file(uint32_t number, const char *suffix)
{
    bs_file_name name;
    (void)snprintf(name.text, sizeof name.text, "binlog.%u%s", number, suffix);
    return name;
}

uint32_t bs_number_of_file(const char *name, const char **suffix)
{
    enum { PREFIX = sizeof "binlog." - 1 };
    unsigned long long number;
    int end = 0;
    if (sscanf(name, "binlog.%10llu%n", &number, &end) != 1 || number > BS_FILE_NUMBER_MAX)
        return 0;
    *suffix = name + end;
    return name[PREFIX] >= '1' && name[PREFIX] <= '9' ? (uint32_t)number : 0;
}

int bs_open_binlog(int dir_fd, uint32_t number, int flags)
{
    return bs_open_regular(dir_fd, bs_name_of_file(number, "").text, flags);
}

int bs_open_regular(int dir_fd, const char *name, int flags)
{
    struct stat status;
    /* Opening a device can have side effects, so the type is checked first, through any link. */
    if (fstatat(dir_fd, name, &status, 0) == 0 && !S_ISREG(status.st_mode))
        return BS_NOT_REGULAR;
    int fd = bs_io_open(dir_fd, name, flags | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return fd == -ELOOP ? BS_NOT_REGULAR : fd;
    int error = fstat(fd, &status) != 0 ? -errno : S_ISREG(status.st_mode) ? 0 : BS_NOT_REGULAR;
    if (!error && (flags & O_ACCMODE) != O_RDONLY && bs_is_foreign_hard_link(dir_fd, &status))
        error = BS_FOREIGN_HARD_LINK;
    if (!error)
        return fd;
    (void)close(fd);
    return error;
}

int bs_create_file(int dir_fd, const char *name)
{
    /* Not bs_io_unlink: a real disk that fails here also fails the open. */
    if (unlinkat(dir_fd, name, 0) != 0 && errno != ENOENT)
        return -errno;
    return bs_io_open(dir_fd, name, O_RDWR | O_CREAT | O_EXCL);
}

bool bs_is_foreign_hard_link(int dir_fd, const struct stat *status)
{
    struct stat folder;
    if (geteuid() != 0 || status->st_nlink < 2)
        return false;
    return fstat(dir_fd, &folder) != 0 || folder.st_uid != status->st_uid;
}

const char *bs_open_error(int error)
{
    switch (error) {
    case BS_NOT_REGULAR:
        return "it is not a regular file";
    case BS_UNTRUSTED_LINK:
        return "it is a symbolic link of another user; put the file itself there, or make the link as root";
    case BS_FOREIGN_HARD_LINK:
        return "it is a hard link to a file of another user than the owner of the folder";
    default:
        return strerror(-error);
    }
}
