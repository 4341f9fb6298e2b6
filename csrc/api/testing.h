/* Injected faults of system calls, for tests. */
#ifndef BS_API_TESTING_H
#define BS_API_TESTING_H

#include "api/types.h"

/* cdef begin */

/* The binlog's system calls (file_io.h). */
enum {
    BS_IO_OPEN,
    BS_IO_WRITE,
    BS_IO_READ,
    BS_IO_DATASYNC,
    BS_IO_SYNC,
    BS_IO_TRUNCATE,
    BS_IO_RENAME,
    BS_IO_LINK,
    BS_IO_UNLINK,
    BS_IO_LOCK,
    BS_IO_FILL, /* the zeros of a new file */
    BS_IO_NOTE, /* the line in the lock file */
    BS_IO_CALLS
};

/* Makes the nth call (1 is the next) of the kinds in the mask (1 << BS_IO_...), counted together, fail with `error`;
 * with `lasting` all later ones too. A write that fails with ENOSPC or EIO first writes half its bytes. nth 0 removes
 * the fault. */
void bs_io_fail(unsigned mask, int64_t nth, int error, int lasting);

/* Returns the calls of one kind since the process started. */
int64_t bs_io_calls(int kind);

/* cdef end */

#endif
