/* Full entries of open jobs, wherever they lie: in what is being read just now, or in a file of before.
 *
 * Jobs end about in the order in which they were put, so a few windows that stay at their files read most of them with
 * one call for many.
 */
#ifndef BS_FULLENTRY_H
#define BS_FULLENTRY_H

#include "binlog_files/scan.h"

enum { BS_FULL_WINDOWS = 16, BS_FULL_WINDOW = 16 * 1024 };

typedef struct {
    uint32_t folder;
    uint32_t number; /* 0: none is open */
    int fd;
    bool whole; /* its scan has all of the file */
    uint64_t used; /* when last */
    bs_scan scan;
} bs_full_window;

typedef struct {
    bs_full_window windows[BS_FULL_WINDOWS];
    uint64_t uses;
} bs_full_entries;

/* 0 or -ENOMEM; bs_full_entries_free is right after either. */
int bs_full_entries_init(bs_full_entries *fulls);
void bs_full_entries_free(bs_full_entries *fulls);

/* The window that looks at this file, opened if need be, so that it has what comes before `needed`; `length` bytes of
 * the file do not change any more, UINT64_MAX: all. NULL with a negative errno in *error. */
bs_full_window *bs_full_entries_window(bs_full_entries *fulls, int dir_fd, uint32_t folder, uint32_t number,
                                       uint64_t needed, uint64_t length, int *error);

/* Nothing more will be read of this file: it is closed, so that who deletes it has its room. */
void bs_full_entries_leave(bs_full_entries *fulls, uint32_t folder, uint32_t number);

/* Opens binlog.<number> under one of the names that it may have. A descriptor or a negative errno. */
int bs_open_log(int dir_fd, uint32_t number);

#endif
