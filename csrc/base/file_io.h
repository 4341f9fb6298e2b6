/* Every system call of the binlog that can fail, in one table, so that tests can make the nth of them fail.
 *
 * The calls have the semantics and the errno of POSIX. Three threads make them.
 */
#ifndef BS_IO_H
#define BS_IO_H

#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>
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
    int (*lock)(int fd); /* a write lock on the whole file, without waiting */
    ssize_t (*fill)(int fd, const void *data, size_t length, off_t offset);
    ssize_t (*note)(int fd, const void *data, size_t length, off_t offset);
} bs_io_table;

extern bs_io_table bs_io;

/* Returned for a FIFO, a socket, a device or a folder. */
#define BS_NOT_REGULAR (-EMEDIUMTYPE)

/* Returned for writing: see bs_is_foreign_hard_link. */
#define BS_FOREIGN_HARD_LINK (-EMLINK)

/* Opens a regular file without blocking, for reading also through a symbolic link of root or of the user of this process
 * (bs_open_linked). A descriptor or a negative errno. */
int bs_open_regular(int dir_fd, const char *name, int flags);

/* Removes what has this name and creates a file for reading and writing, so that a link or file that the owner of the
 * folder has put there is never written to. A descriptor or a negative errno: -EEXIST if the owner was faster. */
int bs_create_file(int dir_fd, const char *name);

/* Whether a file with this status is a hard link to a file of somebody else than the owner of the folder. Root must not
 * write to it, because the folder's owner can make such a link. False for other users. */
bool bs_is_foreign_hard_link(int dir_fd, const struct stat *status);

/* Returns the message for an error of bs_open_regular. */
const char *bs_open_error(int error);

/* Writes all bytes at the offset with bs_io.write, .fill or .note. 0 or a negative errno. */
int bs_io_write_all(ssize_t (*write)(int, const void *, size_t, off_t), int fd, const char *data, size_t length,
                    off_t offset);

#endif
