#include "base/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/testing.h"
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

/* Counts a call; returns true if it must fail, with errno set. */
static bool fails(int kind)
{
    atomic_fetch_add_explicit(&fault.calls[kind], 1, memory_order_relaxed);
    if (!(atomic_load_explicit(&fault.mask, memory_order_relaxed) & (1U << kind)))
        return false;
    long long left = atomic_fetch_sub(&fault.countdown, 1);
    if (left > 1 || (left < 1 && !atomic_load(&fault.lasting)))
        return false;
    errno = atomic_load(&fault.error);
    return true;
}

/* Never writes through a link, and reads only through those of folder.h: the owner of a folder could make a server of
 * root read or write any file. */
static int do_open(int dir_fd, const char *name, int flags)
{
    if (fails(BS_IO_OPEN))
        return -1;
    int fd = openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 || errno != ELOOP || (flags & O_ACCMODE) != O_RDONLY)
        return fd;
    fd = bs_open_linked(dir_fd, name, flags);
    if (fd < 0)
        errno = -fd;
    return fd < 0 ? -1 : fd;
}

/* As a full or broken disk does: part of the data is written, and the rest is an error. */
static ssize_t half_write(int fd, const void *data, size_t length, off_t offset)
{
    int error = errno;
    ssize_t written = pwrite(fd, data, length / 2, offset);
    errno = error;
    return written < 0 ? written : -1;
}

static ssize_t do_write(int fd, const void *data, size_t length, off_t offset)
{
    return fails(BS_IO_WRITE) ? half_write(fd, data, length, offset) : pwrite(fd, data, length, offset);
}

static ssize_t do_fill(int fd, const void *data, size_t length, off_t offset)
{
    return fails(BS_IO_FILL) ? half_write(fd, data, length, offset) : pwrite(fd, data, length, offset);
}

static ssize_t do_note(int fd, const void *data, size_t length, off_t offset)
{
    return fails(BS_IO_NOTE) ? half_write(fd, data, length, offset) : pwrite(fd, data, length, offset);
}

static ssize_t do_read(int fd, void *data, size_t length, off_t offset)
{
    return fails(BS_IO_READ) ? -1 : pread(fd, data, length, offset);
}

static int do_datasync(int fd)
{
    return fails(BS_IO_DATASYNC) ? -1 : fdatasync(fd);
}

static int do_sync(int fd)
{
    return fails(BS_IO_SYNC) ? -1 : fsync(fd);
}

static int do_truncate(int fd, off_t length)
{
    return fails(BS_IO_TRUNCATE) ? -1 : ftruncate(fd, length);
}

static int do_rename(int dir_fd, const char *from, const char *to)
{
    return fails(BS_IO_RENAME) ? -1 : renameat(dir_fd, from, dir_fd, to);
}

static int do_unlink(int dir_fd, const char *name)
{
    return fails(BS_IO_UNLINK) ? -1 : unlinkat(dir_fd, name, 0);
}

static int do_lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fails(BS_IO_LOCK) ? -1 : fcntl(fd, F_SETLK, &whole);
}

bs_io_table bs_io = {
    .open = do_open,
    .write = do_write,
    .read = do_read,
    .datasync = do_datasync,
    .sync = do_sync,
    .truncate = do_truncate,
    .rename = do_rename,
    .unlink = do_unlink,
    .lock = do_lock,
    .fill = do_fill,
    .note = do_note,
};

int bs_open_regular(int dir_fd, const char *name, int flags)
{
    struct stat status;
    /* Opening a device can have side effects, so the type is checked first, through any link. */
    if (fstatat(dir_fd, name, &status, 0) == 0 && !S_ISREG(status.st_mode))
        return BS_NOT_REGULAR;
    int fd = bs_io.open(dir_fd, name, flags | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno == ELOOP ? BS_NOT_REGULAR : -errno;
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
    /* Not through the table: a real disk that fails here also fails the open. */
    if (unlinkat(dir_fd, name, 0) != 0 && errno != ENOENT)
        return -errno;
    int fd = bs_io.open(dir_fd, name, O_RDWR | O_CREAT | O_EXCL);
    return fd < 0 ? -errno : fd;
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

int bs_io_write_all(ssize_t (*write)(int, const void *, size_t, off_t), int fd, const char *data, size_t length,
                    off_t offset)
{
    while (length > 0) {
        ssize_t written = write(fd, data, length, offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -errno;
        if (written == 0)
            return -EIO;
        data += written;
        length -= (size_t)written;
        offset += written;
    }
    return 0;
}
