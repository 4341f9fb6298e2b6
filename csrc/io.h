/* Every system call of the binlog that can fail, in one table, so that tests can make the nth of them fail.
 *
 * The calls have the meaning and the errno of the POSIX ones. They are made from three threads.
 */
#ifndef BS_IO_H
#define BS_IO_H

#include <sys/types.h>

typedef struct {
    int (*open)(int dir_fd, const char *name, int flags);
    ssize_t (*write)(int fd, const void *data, size_t length, off_t offset);
    ssize_t (*read)(int fd, void *data, size_t length, off_t offset);
    int (*datasync)(int fd);
    int (*sync)(int fd);
    int (*truncate)(int fd, off_t length);
    int (*rename)(int dir_fd, const char *from, const char *to);
    int (*unlink)(int dir_fd, const char *name);
    int (*lock)(int fd); /* for writing, the whole file, without waiting */
    ssize_t (*fill)(int fd, const void *data, size_t length, off_t offset);
    ssize_t (*note)(int fd, const void *data, size_t length, off_t offset);
} bs_io_table;

extern bs_io_table bs_io;

/* Writes all of it at the offset, by bs_io.write, .fill or .note. 0 or a negative errno. */
int bs_io_write_all(ssize_t (*write)(int, const void *, size_t, off_t), int fd, const char *data, size_t length,
                    off_t offset);

#endif
