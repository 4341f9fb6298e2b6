/* Looks up the full entries of open jobs in any file.
 *
 * Jobs end roughly in the order of their puts, so a few windows at their files read most entries with one call for
 * many.
 */
#ifndef BS_FULL_ENTRIES_H
#define BS_FULL_ENTRIES_H

#include "binlog_files/scan.h"

enum { BS_FULL_WINDOWS = 16, BS_FULL_WINDOW = 16 * 1024 };

typedef struct {
    uint32_t folder;
    uint32_t number; /* 0: none is open */
    int fd;
    bool complete; /* no server writes to the file, and the scan covers all of it */
    uint64_t used; /* time of last use */
    bs_scan scan;
} bs_full_window;

typedef struct {
    bs_full_window windows[BS_FULL_WINDOWS];
    uint64_t uses;
} bs_full_entries;

/* Returns 0 or -ENOMEM; bs_full_entries_free is allowed after either. */
int bs_full_entries_init(bs_full_entries *fulls);
void bs_full_entries_free(bs_full_entries *fulls);

/* Returns a scan of the first `length` bytes of this file, which do not change any more (UINT64_MAX: all). Opens the
 * file if needed. NULL with a negative errno in *error. */
bs_scan *bs_full_entries_scan(bs_full_entries *fulls, int dir_fd, uint32_t folder, uint32_t number, uint64_t length,
                              int *error);

/* Closes the windows on a file, so that its disk space is freed when it is removed. */
void bs_full_entries_close(bs_full_entries *fulls, uint32_t folder, uint32_t number);

/* Opens binlog.<number> under any of its names. Returns a descriptor or a negative errno. */
int bs_open_under_any_name(int dir_fd, uint32_t number);

/* Returns whether binlog.<number> exists under any of its names. */
bool bs_exists_under_any_name(int dir_fd, uint32_t number);

#endif
