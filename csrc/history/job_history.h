/* Every open job of some binlog folders, until it is finished and a history gets it as a message.
 *
 * The calls are in api/history.h. What entries make of jobs is in job_histories.c, their end in job_end.c, the files of a folder one
 * after another in file_follower.c, single full entries in full_entries.h, messages in message.h, what a restart needs in checkpoint.c.
 * There is no clock here, and nothing is written.
 *
 * entry_index.h has the jobs. In its words: `full` is the position of the full entry, `tube` the number of the tube's name,
 * `brief` the address of the bs_timeline, 0 for a job that has only been put; of such a one `body_size` is the state that
 * the full entry tells, Ready or Delayed, and its counters are zero.
 */
#ifndef BS_JOB_HISTORY_H
#define BS_JOB_HISTORY_H

#include <stdbool.h>

#include "base/bytes.h"
#include "api/history.h"
#include "history/full_entries.h"
#include "binlog_files/entry_index.h"
#include "binlog_files/tube_names.h"
#include "binlog_files/scan.h"
#include "history/timeline.h"

enum {
    BS_HISTORY_WINDOW = 256 * 1024,
    BS_HISTORY_REASON_MAX = 128,
    BS_HISTORY_KEY_MAX = 200,       /* bytes of a folder's key, at most */
    BS_HISTORY_EVENTS_MAX = 500,    /* so many fit into the properties of a message, whatever they are */
    BS_HISTORY_OFFSET_BITS = 44 /* of a position in bs_spot; the rest is the number in bs_history.files */
};

#define BS_HISTORY_OFFSET_MASK ((UINT64_C(1) << BS_HISTORY_OFFSET_BITS) - 1)
#define BS_HISTORY_NO_POSITION UINT64_MAX /* the position of a job that was carried in and not found yet */

typedef struct {
    uint32_t file;
    uint64_t offset;
} bs_log_position;

static inline bool bs_log_before(bs_log_position a, bs_log_position b)
{
    return a.file != b.file ? a.file < b.file : a.offset < b.offset;
}

/* A file that is being read, or that has full entries of open jobs. */
typedef struct {
    uint32_t folder;
    uint32_t number; /* 0: this one is free */
    uint64_t jobs;
    bool gone;       /* somebody has removed it: it need not be kept for its jobs */
} bs_history_file;

/* How far one folder is read. */
typedef struct {
    int dir_fd;
    char key[BS_HISTORY_KEY_MAX + 1];
    uint32_t index;
    uint32_t number; /* of the file that is being read or, without a descriptor, was last; 0: none yet */
    int fd;          /* of it, or -1 */
    bool whole;      /* nobody writes to it any more */
    uint32_t file;   /* index in bs_history.files */
    uint32_t bad_from;  /* those that were kept bad are read from this number on, and behind one that was not */
    uint32_t failed; /* attempts to read at `failed_at` */
    uint64_t failed_at;
    uint64_t hopeless; /* length with which the rest of the file made no sense */
    bs_log_position checkpointed;
    bs_log_position archived;
    bool any_archived;
    bs_scan scan;
} bs_follower;

/* Where the folder with this key stood. */
typedef struct {
    char key[BS_HISTORY_KEY_MAX + 1];
    bs_log_position position;
    uint32_t needed_from;
} bs_folder_checkpoint;

typedef struct {
    uint32_t folder;
    uint32_t file;
    uint64_t offset;
    char what[BS_HISTORY_REASON_MAX];
} bs_history_fault;

struct bs_history {
    bs_index index;
    bs_timeline_limits limits;
    uint32_t most_body;
    bs_follower *followers[BS_MAX_WORKERS];
    uint32_t follower_count;
    bs_follower *reading; /* one of them, while bs_history_read runs */
    bs_history_file *files;
    uint32_t file_count;
    uint32_t file_capacity;
    uint32_t file_free; /* none with a lower index is free */
    bs_full_entries fulls;
    bs_names names;
    bs_name *topics; /* by number of name; `name` NULL: not asked yet */
    uint32_t topic_capacity;
    bs_name other;       /* a tube without a number, and its topic */
    bs_name other_topic;
    char wanted[BS_TUBE_NAME_MAX]; /* the tube whose topic is asked for */
    uint32_t wanted_length;
    bs_bytes items;
    uint64_t item_count;
    bs_history_fault *faults;
    size_t fault_count;
    size_t fault_capacity;
    size_t faults_taken;
    bs_bytes checkpoint; /* what bs_history_save_checkpoint made */
    bs_folder_checkpoint *checkpoints; /* folders that were carried in */
    size_t checkpoint_count;
    bs_history_stats facts;
};

/* --- job_histories.c --- */

/* The entry that the follower's scan has found. 0, BS_HISTORY_TOPIC when nothing has changed but a topic is needed, or a
 * negative errno when nothing has changed. */
int bs_history_apply(bs_history *history, bs_follower *follower);

/* The full entry of a job; `*scan` has it in its window, but for a body that is larger. 0 or a negative errno. */
int bs_history_find_full(bs_history *history, uint64_t id, const bs_spot *spot, bs_entry *entry, bs_scan **scan);

/* What is known of a job that has only been put, as a timeline, when this entry is the next. `full` is its full entry, or
 * NULL. NULL: no memory. */
bs_timeline *bs_history_timeline_of_put(const bs_spot *spot, const bs_entry *full, const bs_entry *entry);

/* The job is not open any more; frees its timeline. */
void bs_history_forget(bs_history *history, uint64_t id, const bs_spot *spot);

/* What the judge asks of them. */
bs_scan_jobs bs_history_jobs(bs_history *history);

/* Notes what is wrong. 0 or -ENOMEM. */
int bs_history_add_fault(bs_history *history, uint32_t folder, uint32_t file, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static inline bs_timeline *bs_timeline_of(const bs_spot *spot)
{
    return (bs_timeline *)(uintptr_t)spot->brief;
}

/* Puts a job that was carried in; the timeline is the callee's after 0. 0 or -ENOMEM. */
int bs_history_restore_job(bs_history *history, uint64_t id, bs_timeline *timeline);

/* --- job_end.c --- */

/* The open job that the follower's entry ends. As bs_history_apply. */
int bs_history_end_job(bs_history *history, bs_follower *follower, const bs_spot *spot);

/* --- checkpoint.c --- */

/* A folder of which something was carried in goes on from there. */
void bs_history_resume_folder(bs_history *history, bs_follower *follower);

/* --- file_follower.c --- */

/* An index in `files` for this file, or -ENOMEM, -EFBIG. */
int64_t bs_history_file_index(bs_history *history, uint32_t folder, uint32_t number);

/* No job is there any more, and it is not being read: then it is forgotten. */
void bs_history_release_file(bs_history *history, uint32_t index);

void bs_follower_free(bs_follower *follower);

/* Something could not be read that `offset` of the present file needs: is the next call to try it again? */
bool bs_follower_retries(bs_follower *follower, uint64_t offset, int error);

/* Where reading stands. */
static inline bs_log_position bs_follower_position(const bs_follower *follower)
{
    return (bs_log_position){follower->number, follower->number ? follower->scan.offset : 0};
}

#endif
