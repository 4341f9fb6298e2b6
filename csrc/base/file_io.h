/* Every system call of the binlog that can fail, so that tests can make the nth of them fail.
 *
 * The calls have the semantics of POSIX and return a negative errno for an error. Three threads make them.
 */
#ifndef BS_IO_H
#define BS_IO_H

#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "api/testing.h"

int bs_io_open(int dir_fd, const char *name, int flags);
ssize_t bs_io_read(int fd, void *data, size_t length, off_t offset); /* retries after EINTR */
int bs_io_datasync(int fd);
int bs_io_sync(int fd);
int bs_io_truncate(int fd, off_t length);
int bs_io_rename(int dir_fd, const char *from, const char *to);
int bs_io_link(int dir_fd, const char *from, const char *to);
int bs_io_unlink(int dir_fd, const char *name);
int bs_io_lock(int fd); /* a write lock on the whole file, without waiting */

/* Makes the kernel read further ahead than usual when the file is read in order. Only a hint. */
void bs_io_read_ahead(int fd);

/* Writes all bytes at the offset; `kind` is BS_IO_WRITE, BS_IO_FILL or BS_IO_NOTE. 0 or a negative errno. */
int bs_io_write_all(int kind, int fd, const char *data, size_t length, off_t offset);

/* Closes a descriptor; ignores negative ones. */
static inline void bs_close(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

/* binlog.<number> with a suffix. */
typedef struct {
    char text[32];
} bs_file_name;

bs_file_name bs_name_of_file(uint32_t number, const char *suffix);

/* The highest number of a file: C beanstalkd counts in an int. */
#define BS_FILE_NUMBER_MAX INT32_MAX

/* Returns the number of binlog.<number><suffix>, and its suffix; 0 for other names, binlog.007 among them. */
uint32_t bs_number_of_file(const char *name, const char **suffix);

/* Opens binlog.<number> with bs_open_regular. */
int bs_open_binlog(int dir_fd, uint32_t number, int flags);

/* Returned for a FIFO, a socket, a device or a folder. */
#define BS_NOT_REGULAR (-EMEDIUMTYPE)

/* Returned for writing: see bs_is_foreign_hard_link. */
#define BS_FOREIGN_HARD_LINK (-EMLINK)

/* Opens a regular file without blocking, for reading also through a symbolic link of root or of this process's user
 * (bs_open_linked). A descriptor or a negative errno. */
int bs_open_regular(int dir_fd, const char *name, int flags);

/* Removes any file or link of this name and creates a file for reading and writing, so that root writes to none that
 * the owner of the folder has put there. A descriptor or a negative errno: -EEXIST if the owner was faster. */
int bs_create_file(int dir_fd, const char *name);

/* Returns whether this process is root and the file is a hard link to a file of another user than the folder's owner,
 * who can make such a link. Root must not write to it. */
bool bs_is_foreign_hard_link(int dir_fd, const struct stat *status);

/* Returns the message for an error of bs_open_regular. */
const char *bs_open_error(int error);

#endif
