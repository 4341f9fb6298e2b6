/* Preloaded into a server: records its file operations below the folder RECORD_ROOT.
 *
 * Every write, size change, creation, rename, removal and sync is appended to the file RECORD_LOG, in the format that
 * disk_images.py reads. A change is recorded after the call has returned; a sync is recorded when it begins and when it
 * ends, so that it covers only changes that were complete before it began. A test that kills a server holds an exclusive
 * lock on the log meanwhile, so that each change has its record.
 *
 * While the file RECORD_CONTROL exists, its first byte controls fdatasync, which syncs entries: H blocks these calls
 * until the file is removed, F fails them with EIO. Failed syncs are recorded, too, because the kernel may have marked
 * the pages clean.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

typedef struct __attribute__((packed)) {
    char kind;
    uint64_t thread;
    uint64_t inode;
    int64_t offset;
    uint32_t path_length;
    uint32_t other_length; /* the new name of a rename or link, or the target of a symbolic link */
    uint32_t data_length;
} record;

/* --- paths ------------------------------------------------------------------------------------------ */

/* Resolves the links in the folder part of a path. Returns false if it is outside of the root. */
static int path_of(int dir_fd, const char *name, char out[PATH_MAX])
{
    const char *root = getenv("RECORD_ROOT");
    char joined[PATH_MAX * 2] = "";
    if (!root || !name)
        return 0;
    if (name[0] != '/') {
        char link[64];
        char folder[PATH_MAX];
        (void)snprintf(link, sizeof link, dir_fd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", dir_fd);
        ssize_t length = readlink(link, folder, sizeof folder - 1);
        if (length < 0)
            return 0;
        folder[length] = '\0';
        (void)snprintf(joined, sizeof joined, "%s/", folder);
    }
    if (strlen(joined) + strlen(name) >= PATH_MAX)
        return 0;
    strcat(joined, name);
    strcpy(out, joined);
    size_t length = strlen(root);
    return strncmp(out, root, length) == 0 && (out[length] == '/' || out[length] == '\0');
}

/* Returns the current path of an open file, which may have been renamed. */
static int path_of_fd(int fd, char out[PATH_MAX])
{
    char link[64];
    const char *root = getenv("RECORD_ROOT");
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = root ? readlink(link, out, PATH_MAX - 1) : -1;
    if (length < 0)
        return 0;
    out[length] = '\0';
    return strncmp(out, root, strlen(root)) == 0;
}

/* --- the log ---------------------------------------------------------------------------------------- */

static int open_log(int flags)
{
    const char *name = getenv("RECORD_LOG");
    return name ? (int)syscall(SYS_openat, AT_FDCWD, name, flags | O_CREAT | O_CLOEXEC, 0600) : -1;
}

/* Keeps a kill away until the change is recorded. Returns what `leave` needs. */
static int enter(void)
{
    const int fd = open_log(O_RDONLY);
    while (fd >= 0 && flock(fd, LOCK_SH) != 0 && errno == EINTR)
        continue;
    return fd;
}

static void leave(int fd)
{
    const int saved = errno;
    if (fd >= 0)
        (void)syscall(SYS_close, fd);
    errno = saved;
}

static void append(char kind, uint64_t inode, int64_t offset, const char *path, const char *other, const void *data,
                   size_t length)
{
    static int log_fd = -1;
    const int saved = errno;
    if (log_fd < 0)
        log_fd = open_log(O_WRONLY | O_APPEND);
    record head = {kind, (uint64_t)gettid(), inode, offset, (uint32_t)strlen(path), other ? (uint32_t)strlen(other) : 0,
                   (uint32_t)length};
    struct iovec parts[] = {
        {&head, sizeof head},
        {(void *)(uintptr_t)path, head.path_length},
        {(void *)(uintptr_t)other, head.other_length},
        {(void *)(uintptr_t)data, length},
    };
    ssize_t wanted = (ssize_t)(sizeof head + head.path_length + head.other_length + length);
    if (syscall(SYS_writev, log_fd, parts, 4) != wanted)
        abort();
    errno = saved;
}

static uint64_t inode_of(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? (uint64_t)status.st_ino : 0;
}

static void on_file(char kind, int fd, int64_t offset, const void *data, size_t length)
{
    char path[PATH_MAX];
    uint64_t inode = path_of_fd(fd, path) ? inode_of(fd) : 0;
    if (inode)
        append(kind, inode, offset, path, NULL, data, length);
}

static void on_name(char kind, int dir_fd, const char *name, const char *other)
{
    char path[PATH_MAX];
    if (path_of(dir_fd, name, path))
        append(kind, 0, 0, path, other, NULL, 0);
}

/* --- files ------------------------------------------------------------------------------------------ */

static int do_open(int dir_fd, const char *name, int flags, mode_t mode)
{
    char path[PATH_MAX];
    struct stat status;
    int recorded = (flags & (O_CREAT | O_TRUNC)) && path_of(dir_fd, name, path);
    if (!recorded)
        return (int)syscall(SYS_openat, dir_fd, name, flags, mode);
    const int entered = enter();
    int existed = fstatat(dir_fd, name, &status, 0) == 0;
    int fd = (int)syscall(SYS_openat, dir_fd, name, flags, mode);
    if (fd >= 0 && !existed)
        append('C', inode_of(fd), 0, path, NULL, NULL, 0);
    else if (fd >= 0 && flags & O_TRUNC)
        on_file('T', fd, 0, NULL, 0);
    leave(entered);
    return fd;
}

#define MODE(flags, mode)                 \
    mode_t mode = 0;                      \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list list;                     \
        va_start(list, flags);            \
        mode = va_arg(list, mode_t);      \
        va_end(list);                     \
    }

int open(const char *name, int flags, ...)
{
    MODE(flags, mode)
    return do_open(AT_FDCWD, name, flags, mode);
}

int open64(const char *name, int flags, ...)
{
    MODE(flags, mode)
    return do_open(AT_FDCWD, name, flags, mode);
}

int openat(int dir_fd, const char *name, int flags, ...)
{
    MODE(flags, mode)
    return do_open(dir_fd, name, flags, mode);
}

int openat64(int dir_fd, const char *name, int flags, ...)
{
    MODE(flags, mode)
    return do_open(dir_fd, name, flags, mode);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off_t offset)
{
    const int entered = enter();
    ssize_t written = syscall(SYS_pwrite64, fd, data, length, offset);
    if (written > 0)
        on_file('W', fd, offset, data, (size_t)written);
    leave(entered);
    return written;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset)
{
    return pwrite64(fd, data, length, offset);
}

ssize_t write(int fd, const void *data, size_t length)
{
    const int entered = enter();
    ssize_t written = syscall(SYS_write, fd, data, length);
    if (written > 0 && getenv("RECORD_ROOT")) {
        off_t end = lseek(fd, 0, SEEK_CUR); /* the end of the written bytes, also with O_APPEND */
        if (end >= written)
            on_file('W', fd, end - written, data, (size_t)written);
    }
    leave(entered);
    return written;
}

int ftruncate64(int fd, off_t length)
{
    const int entered = enter();
    int result = (int)syscall(SYS_ftruncate, fd, length);
    if (result == 0)
        on_file('T', fd, length, NULL, 0);
    leave(entered);
    return result;
}

int ftruncate(int fd, off_t length)
{
    return ftruncate64(fd, length);
}

int posix_fallocate64(int fd, off_t offset, off_t length)
{
    const int entered = enter();
    int result = syscall(SYS_fallocate, fd, 0, offset, length) == 0 ? 0 : errno;
    if (result == 0)
        on_file('A', fd, offset + length, NULL, 0);
    leave(entered);
    return result;
}

int posix_fallocate(int fd, off_t offset, off_t length)
{
    return posix_fallocate64(fd, offset, length);
}

/* --- syncs ------------------------------------------------------------------------------------------ */

static char control(void)
{
    const char *name = getenv("RECORD_CONTROL");
    int fd = name ? (int)syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC) : -1;
    char wanted = '\0';
    if (fd < 0)
        return wanted;
    (void)syscall(SYS_read, fd, &wanted, 1);
    (void)syscall(SYS_close, fd);
    return wanted;
}

static int do_sync(long call, int fd)
{
    char path[PATH_MAX];
    if (!path_of_fd(fd, path))
        return (int)syscall(call, fd);
    const uint64_t inode = inode_of(fd); /* 0: a folder */
    while (call == SYS_fdatasync && control() == 'H')
        (void)usleep(500);
    append('B', inode, 0, path, NULL, NULL, 0);
    if (call == SYS_fdatasync && control() == 'F') {
        append('X', inode, 0, path, NULL, NULL, 0);
        errno = EIO;
        return -1;
    }
    int result = (int)syscall(call, fd);
    if (result == 0)
        append('S', inode, 0, path, NULL, NULL, 0);
    return result;
}

int fdatasync(int fd)
{
    return do_sync(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    return do_sync(SYS_fsync, fd);
}

/* --- names ------------------------------------------------------------------------------------------ */

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    char target[PATH_MAX];
    int known = path_of(to_fd, to, target);
    const int entered = enter();
    int result = (int)syscall(SYS_renameat, from_fd, from, to_fd, to);
    if (result == 0 && known)
        on_name('R', from_fd, from, target);
    leave(entered);
    return result;
}

int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int unlinkat(int dir_fd, const char *name, int flags)
{
    const int entered = enter();
    int result = (int)syscall(SYS_unlinkat, dir_fd, name, flags);
    if (result == 0)
        on_name('U', dir_fd, name, NULL);
    leave(entered);
    return result;
}

int unlink(const char *name)
{
    return unlinkat(AT_FDCWD, name, 0);
}

int rmdir(const char *name)
{
    return unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}

int mkdirat(int dir_fd, const char *name, mode_t mode)
{
    const int entered = enter();
    int result = (int)syscall(SYS_mkdirat, dir_fd, name, mode);
    if (result == 0)
        on_name('M', dir_fd, name, NULL);
    leave(entered);
    return result;
}

int mkdir(const char *name, mode_t mode)
{
    return mkdirat(AT_FDCWD, name, mode);
}

int symlinkat(const char *target, int dir_fd, const char *name)
{
    const int entered = enter();
    int result = (int)syscall(SYS_symlinkat, target, dir_fd, name);
    if (result == 0)
        on_name('Y', dir_fd, name, target);
    leave(entered);
    return result;
}

int symlink(const char *target, const char *name)
{
    return symlinkat(target, AT_FDCWD, name);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    char target[PATH_MAX];
    int known = path_of(to_fd, to, target);
    const int entered = enter();
    int result = (int)syscall(SYS_linkat, from_fd, from, to_fd, to, flags);
    if (result == 0 && known)
        on_name('L', from_fd, from, target);
    leave(entered);
    return result;
}

int link(const char *from, const char *to)
{
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}
