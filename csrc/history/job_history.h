/* Every open job of some binlog folders, until it is finished and a history gets it as a message.
 *
 * The calls are in core.h. What entries make of jobs is in job_histories.c, their end in job_end.c, the files of a folder one
 * after another in file_follower.c, single full entries in full_entries.h, messages in message.h, what a restart needs in checkpoint.c.
 * There is no clock here, and nothing is written.
 *
 * entry_index.h has the jobs. In its words: `full` is the place of the full entry, `tube` the number of the tube's name,
 * `brief` the address of the bs_life, 0 for a job that has only been put; of such a one `body_size` is the state that
 * the full entry tells, Ready or Delayed, and its counters are zero.
 */
#ifndef BS_LIVES_H
#define BS_LIVES_H

#include <stdbool.h>

#include "base/bytes.h"
#include "api/core.h"
#include "history/full_entries.h"
#include "binlog_files/entry_index.h"
#include "binlog_files/tube_names.h"
#include "binlog_files/scan.h"
#include "history/timeline.h"

enum {
    BS_LIVES_WINDOW = 256 * 1024,
    BS_LIVES_WHY = 128,
    BS_LIVES_KEY = 200,       /* bytes of a folder's key, at most */
    BS_LIVES_EVENTS = 500,    /* so many fit into the properties of a message, whatever they are */
    BS_LIVES_OFFSET_BITS = 44 /* of a place in bs_spot; the rest is the number in bs_lives.files */
};

#define BS_LIVES_OFFSET_MASK ((UINT64_C(1) << BS_LIVES_OFFSET_BITS) - 1)
#define BS_LIVES_NOWHERE UINT64_MAX /* the place of a job that was carried in and not found yet */

typedef struct {
    uint32_t file;
    uint64_t offset;
} bs_log_place;

static inline bool bs_log_before(bs_log_place a, bs_log_place b)
{
    return a.file != b.file ? a.file < b.file : a.offset < b.offset;
}

/* A file that is being read, or that has full entries of open jobs. */
typedef struct {
    uint32_t folder;
    uint32_t number; /* 0: this one is free */
    uint64_t jobs;
    bool gone;       /* somebody has removed it: it need not be kept for its jobs */
} bs_lives_file;

/* How far one folder is read. */
typedef struct {
    int dir_fd;
    char key[BS_LIVES_KEY + 1];
    uint32_t index;
    uint32_t number; /* of the file that is being read or, without a descriptor, was last; 0: none yet */
    int fd;          /* of it, or -1 */
    bool whole;      /* nobody writes to it any more */
    uint32_t file;   /* index in bs_lives.files */
    uint32_t aside;  /* those that were kept aside are read from this number on, and behind one that was not */
    uint32_t failed; /* attempts to read at `failed_at` */
    uint64_t failed_at;
    uint64_t hopeless; /* length with which the rest of the file made no sense */
    bs_log_place carried;
    bs_log_place archived;
    bool any_archived;
    bs_scan scan;
} bs_trail;

/* Where the folder with this key stood. */
typedef struct {
    char key[BS_LIVES_KEY + 1];
    bs_log_place place;
    uint32_t needed_from;
} bs_carried;

typedef struct {
    uint32_t folder;
    uint32_t file;
    uint64_t offset;
    char what[BS_LIVES_WHY];
} bs_lives_mistake;

struct bs_lives {
    bs_index index;
    bs_life_shape shape;
    uint32_t most_body;
    bs_trail *trails[BS_MAX_WORKERS];
    uint32_t trail_count;
    bs_trail *reading; /* one of them, while bs_lives_read runs */
    bs_lives_file *files;
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
    bs_lives_mistake *mistakes;
    size_t mistake_count;
    size_t mistake_capacity;
    size_t mistakes_told;
    bs_bytes carry; /* what bs_lives_carry_out made */
    bs_carried *carried; /* folders that were carried in */
    size_t carried_count;
    bs_lives_facts facts;
};

/* --- job_histories.c --- */

/* The entry that the trail's scan has found. 0, BS_LIVES_TOPIC when nothing has changed but a topic is needed, or a
 * negative errno when nothing has changed. */
int bs_lives_take(bs_lives *lives, bs_trail *trail);

/* The full entry of a job; `*scan` has it in its window, but for a body that is larger. 0 or a negative errno. */
int bs_lives_find_full(bs_lives *lives, uint64_t id, const bs_spot *spot, bs_entry *entry, bs_scan **scan);

/* What is known of a job that has only been put, as a life, when this entry is the next. `full` is its full entry, or
 * NULL. NULL: no memory. */
bs_life *bs_lives_life_of_put(const bs_spot *spot, const bs_entry *full, const bs_entry *entry);

/* The job is not open any more; frees its life. */
void bs_lives_forget(bs_lives *lives, uint64_t id, const bs_spot *spot);

/* What the judge asks of them. */
bs_scan_jobs bs_lives_jobs(bs_lives *lives);

/* Notes what is wrong. 0 or -ENOMEM. */
int bs_lives_complain(bs_lives *lives, uint32_t folder, uint32_t file, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static inline bs_life *bs_life_of(const bs_spot *spot)
{
    return (bs_life *)(uintptr_t)spot->brief;
}

/* Puts a job that was carried in; the life is the callee's after 0. 0 or -ENOMEM. */
int bs_lives_bring(bs_lives *lives, uint64_t id, bs_life *life);

/* --- job_end.c --- */

/* The open job that the trail's entry ends. As bs_lives_take. */
int bs_lives_end(bs_lives *lives, bs_trail *trail, const bs_spot *spot);

/* --- checkpoint.c --- */

/* A folder of which something was carried in goes on from there. */
void bs_lives_continue(bs_lives *lives, bs_trail *trail);

/* --- file_follower.c --- */

/* An index in `files` for this file, or -ENOMEM, -EFBIG. */
int64_t bs_lives_file_index(bs_lives *lives, uint32_t folder, uint32_t number);

/* No job is there any more, and it is not being read: then it is forgotten. */
void bs_lives_leave_file(bs_lives *lives, uint32_t index);

void bs_trail_free(bs_trail *trail);

/* Something could not be read that `offset` of the present file needs: is the next call to try it again? */
bool bs_trail_tries_again(bs_trail *trail, uint64_t offset, int error);

/* Where reading stands. */
static inline bs_log_place bs_trail_place(const bs_trail *trail)
{
    return (bs_log_place){trail->number, trail->number ? trail->scan.offset : 0};
}

#endif
