/* The open jobs of some binlog folders, until each ends and becomes a message of the history.
 *
 * The interface is in api/history.h. job_history.c applies entries to jobs, job_end.c turns ended jobs into messages,
 * file_follower.c reads a folder's files, full_entries.h looks up full entries, and checkpoint.c saves state for a
 * restart. Nothing here reads a clock or writes a file.
 *
 * The jobs are in entry_index.h: `full` is the position of the full entry, `tube` the number of the tube's name,
 * `last_short` the address of the bs_timeline, or 0 for a job that was only put. For such a job `body_size` is the
 * state in its full entry, Ready or Delayed, and its counters are zero.
 */
#ifndef BS_JOB_HISTORY_H
#define BS_JOB_HISTORY_H

#include <stdbool.h>

#include "base/bytes.h"
#include "api/history.h"
#include "binlog_files/entry_index.h"
#include "binlog_files/full_entries.h"
#include "binlog_files/tube_names.h"
#include "binlog_files/scan.h"
#include "history/timeline.h"

enum {
    BS_HISTORY_WINDOW = 256 * 1024,
    BS_HISTORY_KEY_MAX = 200,       /* bytes of a folder's key */
    BS_HISTORY_EVENTS_MAX = 500,    /* this many always fit into the properties of a message */
    BS_HISTORY_OFFSET_BITS = 44 /* of a position in bs_spot; the rest is the index in bs_history.files */
};

#define BS_HISTORY_OFFSET_MASK ((UINT64_C(1) << BS_HISTORY_OFFSET_BITS) - 1)
#define BS_HISTORY_NO_POSITION UINT64_MAX /* the position of a restored job that was not read again yet */

static inline bool bs_position_before(bs_binlog_position a, bs_binlog_position b)
{
    return a.file != b.file ? a.file < b.file : a.offset < b.offset;
}

/* A file that is being read, or that has full entries of open jobs. */
typedef struct {
    uint32_t folder;
    uint32_t number; /* 0: unused */
    uint64_t jobs;
    bool gone;       /* another process has removed it, so it need not be kept for its jobs */
} bs_history_file;

/* The read position of one folder. */
typedef struct {
    int dir_fd;
    char key[BS_HISTORY_KEY_MAX + 1];
    uint32_t index;
    uint32_t number; /* of the current file or, without a descriptor, of the previous one; 0: none yet */
    int fd;          /* of it, or -1 */
    bool complete;   /* no server writes to it any more */
    uint32_t file;   /* index in bs_history.files */
    uint32_t bad_from;  /* .bad files are read from this number on, and after another file */
    uint32_t failed; /* attempts to read at `failed_at` */
    uint64_t failed_at;
    uint64_t invalid_length; /* of the file when its rest was invalid; 0: never */
    bs_binlog_position checkpointed;
    bs_binlog_position archived; /* file 0: none */
    bs_scan scan;
} bs_follower;

/* The position of a folder in a loaded checkpoint. */
typedef struct {
    char key[BS_HISTORY_KEY_MAX + 1];
    bs_binlog_position position;
    uint32_t needed_from;
} bs_folder_checkpoint;

struct bs_history {
    bs_index index;
    bs_timeline_limits limits;
    uint32_t most_body;
    bs_follower *followers[BS_MAX_WORKERS];
    uint32_t follower_count;
    bs_follower *reading; /* set while bs_history_read runs */
    bs_history_file *files;
    uint32_t file_count;
    size_t file_capacity;
    bs_full_entries fulls;
    bs_names names;
    bs_name unnumbered_tube; /* the last tube that got a topic but no number; owns its texts */
    char topicless[BS_TUBE_NAME_MAX]; /* the tube whose topic is needed */
    uint32_t topicless_length;
    bs_bytes items;
    uint64_t item_count;
    bs_history_fault *faults;
    size_t fault_count;
    size_t fault_capacity;
    size_t faults_taken;
    bs_bytes checkpoint; /* the last result of bs_history_save_checkpoint */
    bs_folder_checkpoint *checkpoints; /* of a loaded checkpoint */
    size_t checkpoint_count;
    bs_history_stats stats;
};

/* --- job_history.c --- */

/* Applies the current entry of the follower's scan. Returns 0, BS_HISTORY_TOPIC if a topic is needed first, or a
 * negative errno; after the last two nothing has changed. */
int bs_history_apply(bs_history *history, bs_follower *follower);

/* Finds the full entry of a job. `*scan` has it in its window, except for a larger body. Returns 0 or a negative errno.
 */
int bs_history_find_full(bs_history *history, uint64_t id, const bs_spot *spot, bs_entry *entry, bs_scan **scan);

/* Creates the timeline of a job that was only put, for its next entry. `full` is its full entry, or NULL. NULL: no
 * memory. */
bs_timeline *bs_history_timeline_of_put(const bs_spot *spot, const bs_entry *full, const bs_entry *entry);

/* Removes a job that is not open any more, and frees its timeline. */
void bs_history_forget(bs_history *history, uint64_t id, const bs_spot *spot);

void bs_history_free_jobs(bs_history *history);

bs_scan_find_job bs_history_find_job;

/* Returns 0 or -ENOMEM. */
int bs_history_add_fault(bs_history *history, uint32_t folder, uint32_t file, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static inline bs_timeline *bs_timeline_of(const bs_spot *spot)
{
    return (bs_timeline *)(uintptr_t)spot->last_short;
}

/* --- job_end.c --- */

/* Ends the open job of the follower's entry. Returns like bs_history_apply. */
int bs_history_end_job(bs_history *history, bs_follower *follower, const bs_spot *spot);

/* --- checkpoint.c --- */

/* Continues a folder at its position in the loaded checkpoint. */
void bs_history_resume_folder(bs_history *history, bs_follower *follower);

/* --- file_follower.c --- */

/* Releases a file that has no job and is not being read. */
void bs_history_release_file(bs_history *history, uint32_t index);

void bs_follower_free(bs_follower *follower);

/* After a failed read for the entry at `offset`: returns whether the next call should try again. */
bool bs_follower_retries(bs_follower *follower, uint64_t offset, int error);

static inline bs_binlog_position bs_follower_position(const bs_follower *follower)
{
    return (bs_binlog_position){follower->number, follower->number ? follower->scan.offset : 0};
}

#endif
