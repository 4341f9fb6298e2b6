/* What the files of csrc/recovery share. */
#ifndef BS_RECOVERY_STATE_H
#define BS_RECOVERY_STATE_H

#include "binlog_files/scan.h"
#include "recovery/recovery.h"

/* While it lasts, a job's `place` is its index in `jobs`, `session` the checksum field of its last entry, `at` the wall
 * time of that entry's deadline_at, and `reserve_written` whether its reservation is kept. */
struct bs_recovery {
    bs_binlog *binlog;
    bs_queue *queue;
    bs_now now;
    bs_job **jobs; /* in the order of their first entry; NULL where one was deleted */
    uint32_t job_count;
    uint32_t job_capacity;
    uint64_t highest_id;
    int64_t log_time; /* the latest time so far: that of an entry without one */
    uint32_t number;  /* of the last file that was opened */
    uint32_t next;    /* the lowest file that is not read to its end */
    bool follows;     /* in bs_recovery_follow: nothing in the folder is changed */
    bool partial;     /* the file being read has more bytes than its scan */
    bs_binlog_file *file; /* the file being read, if it has entries */
    bs_scan scan;     /* of it; with a descriptor from call to call while it is partial */
    bs_entry_attributes attributes; /* of the last attribute entry of this file */
    uint64_t attributes_end; /* behind it; 0: none */
    bool gap_recorded; /* this file records that the one before its number never existed */
};

/* --- entries.c --- */

/* Applies an entry of the file being read; `job` has its id, or is NULL. Returns 0 or a negative errno. */
int bs_recovery_apply(bs_recovery *r, const bs_entry *entry, bs_job *job);

void bs_recovery_remove_key(bs_recovery *r, bs_ended_key *ended);

/* Removes the jobs and ended keys of the files below this number. */
void bs_recovery_remove_before(bs_recovery *r, uint32_t first);

/* --- list_files.c --- */

/* The files of a folder. */
typedef struct {
    uint32_t *numbers; /* rising; owned by the caller */
    size_t count;
    uint32_t highest_renamed; /* of files that were renamed to .bad or .done */
} bs_file_list;

/* Lists the files, counts those that wait for an archiver, and removes unfinished ones. Returns 0 or a negative errno. */
int bs_recovery_list(bs_binlog *binlog, bs_file_list *list);

/* --- files.c --- */

/* Reads the first `length` bytes of a file, of which it may have read a part; UINT64_MAX: all, for the last time. Returns
 * 0 or a negative errno. */
int bs_recovery_read_file(bs_recovery *r, uint32_t number, uint64_t length);

#endif
