/* The binlog while the server runs: appends entries, keeps space, syncs, collects files.
 *
 * Entries of a round gather in a buffer; bs_binlog_write gives it to the current file in one write. All entries
 * since the last sync began are one *generation*; a reply waits for the generation of what it says.
 *
 * With bs_config.history there are also *pending_reserves*: short entries that nothing but a timeline needs - a reserve that lasts
 * (pending_reserves.h), a touch, a TTR that is over, a client that has gone. A start reads them as any other entry, and they cost space as any other, so
 * they count for compaction; but they are owed to nobody. A note that has no room without waiting is left out and
 * counted. None changes what a reply waits for, and none is a reason for a sync by itself: pending_reserves get to disk with the
 * next sync that something else causes, or else by one of their own, BS_DEFERRED_SYNC_NS after the first of them, on the sync
 * thread, that no reply waits for. Files that are no longer needed are handed over (preallocation.h), not removed, and the durable
 * place is told (durable_position.h).
 *
 * Invariants:
 *   B1  The current file and the preallocator have room for a short entry for every live job (`owed`), so every job can be
 *       deleted on a full disk. Only a start on a disk that is full already can leave it broken.
 *   B2  An entry never crosses files.
 *   B3  A file is given up only from the oldest on, only when no live job has its full entry there, and only after the
 *       sync of everything written when the last one left.
 *   B4  After a write or sync failed nothing is written, synced or acknowledged any more (`failed`).
 *   B5  `alive` is the bytes of what a reader still needs: per live job its full entry, the last short entry, and the
 *       short one owed. A short entry that a later one replaces is dead.
 *   B6  Nothing that a start has read is on its way to disk when something depends on it, and every file before
 *       `unsynced_from` is there (unsynced.h).
 *   B7  A file records the length of an earlier one only after the sync of that one, so a shorter one is damaged. With
 *       -F it records the length after the write, for the present boot only (lengths.h).
 */
#ifndef BS_BINLOG_H
#define BS_BINLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/boot_id.h"
#include "base/bytes.h"
#include "api/server.h"
#include "base/clock.h"
#include "base/event_queue.h"
#include "binlog/hold.h"
#include "binlog/pending_reserves.h"
#include "binlog/preallocation.h"
#include "binlog/sync_thread.h"
#include "jobs/job.h"

typedef struct bs_compaction bs_compaction;

/* How long pending_reserves wait for a sync that something else causes, and a reserve for another entry that tells of it. */
#define BS_DEFERRED_SYNC_NS BS_SECOND
#define BS_PENDING_RESERVE_NS (BS_SECOND / 2)

/* One file of the folder that has entries; the last one is written to. */
typedef struct {
    uint32_t number;
    uint32_t jobs;      /* live, with their full entry here */
    int64_t bytes;      /* used */
    uint64_t empty_gen; /* the generation after which no live job is here */
    int64_t unused;     /* bytes on disk of a file that was made and never written to, or 0 */
    bool damaged;       /* kept renamed rather than removed */
    bool used;          /* it has entries of jobs, or had when it was read */
    bool has_length;    /* a later file states its length, or need not: there is no entry of a job */
    bool left_out;      /* its end could not be read, which was said */
    uint64_t complete_gen; /* the generation with its last entry; 0: it was there before */
    uint32_t length_in; /* the file that says how long it was when it was complete, */
    int64_t length;     /* bytes */
    uint64_t length_boot; /* as in bs_entry */
} bs_binlog_file;

typedef struct {
    const bs_job_table *jobs;
    bs_counters *counters;
    bs_shared *shared;
    bs_events *events;
    int64_t file_size; /* bytes of a new file; one for an entry that needs more is larger */
    int64_t sync_interval_ns; /* as in bs_config */
    bool history;
    int dir_fd;
    int lock_fd;
    int wake_fd;

    bs_binlog_file *files; /* [first_file, file_end), rising numbers; the last is current */
    uint32_t first_file;
    uint32_t file_end;
    uint32_t file_capacity;
    uint32_t lengths_missing; /* complete files without has_length */
    bs_boot boot;
    uint32_t last_number; /* ever given to a file */
    char refused[32];     /* the file that could not be opened, so that there is no start */
    uint32_t done_files; /* files that were found and that whoever archives has yet to take */
    int64_t done_bytes;

    int fd;           /* of the current file */
    int64_t size;     /* of the current file, bytes */
    int64_t written;  /* bytes of it on the way to disk */
    int64_t end;      /* and with the buffer */
    bs_bytes buffer;
    bs_sync_file *complete; /* files that this generation left */
    size_t complete_count;
    size_t complete_capacity;

    bs_preallocated *ready; /* ready files, next first */
    uint32_t ready_count;
    uint32_t ready_capacity;
    uint64_t ready_slots;  /* short entries that the preallocator can take */
    uint32_t files_requested;
    uint32_t files_ahead; /* beyond what B1 needs */
    int64_t refused_until; /* mono; no room before that, so do not ask for a file */
    bool refusing;         /* another file cannot be made, which has been logged */
    bool full;             /* puts are refused for want of room, which has been logged */
    int64_t full_size;     /* bytes of the smallest entry that was refused since `full` */

    uint64_t owed;  /* short entries for which room is kept: one per live job */
    int64_t total;  /* bytes used in all files */
    int64_t alive;  /* without what is owed */
    uint32_t appended; /* entries since the last bs_binlog_write, moves not counted */

    uint64_t gen;      /* what is appended now belongs to it */
    bool dirty;        /* something of it is that is owed to somebody */
    bs_pending_reserves pending_reserves;    /* reserves without one */
    bool deferred;        /* pending_reserves are, */
    int64_t deferred_at;  /* mono; the first of them since then */
    uint64_t entries_before; /* records_written when this generation began */
    uint64_t syncing_entries; /* of the generation under way */
    uint64_t syncing;  /* the generation under way, or 0 */
    bool syncing_owed; /* it has more than pending_reserves */
    uint32_t sync_file; /* where it ends */
    int64_t sync_end;
    uint64_t synced;   /* the last one on disk */
    int64_t synced_at; /* mono */
    int failed;        /* B4: negative errno */
    const char *failed_call;
    uint32_t failed_file;       /* at the start: its number; 0: the folder */
    uint32_t unsynced_from;     /* as the lock file says (unsynced.h), or 0 */
    bool unsynced_unwritable;   /* said so already */

    bs_compaction *compaction; /* compact.h */

    bs_syncer *syncer;
    bs_preallocator *preallocator;
} bs_binlog;

/* Takes the folder and its lock; reads nothing. NULL with the reason in `error`: BS_ERR_FOLDER, BS_ERR_LOCKED or a
 * negative errno. The pointers and `wake_fd` stay the caller's. */
bs_binlog *bs_binlog_new(const bs_config *config, const bs_job_table *jobs, bs_counters *counters, bs_shared *shared,
                         bs_events *events, int wake_fd, int *error);

/* Starts a new file, after recover.h has filled `files`; those that a stop or a kill left unused, at the end of the
 * numbers, are taken as preallocator, so that a start needs no room that is not there already. 0 or a negative errno. */
int bs_binlog_start(bs_binlog *binlog, bs_now now);

/* Gives up the lock and every descriptor; writes nothing. NULL is ignored. */
void bs_binlog_free(bs_binlog *binlog);

/* --- what the queue says; a NULL binlog takes it all and does nothing --- */

/* The full entry of a new job. 0 or -ENOSPC. */
int bs_binlog_put(bs_binlog *binlog, bs_job *job, bs_now now);

/* Is there room for one more short entry beyond those owed? */
bool bs_binlog_reserve_space(bs_binlog *binlog, bs_now now);

/* A short entry with the job's present state; needs room. `reserve_age` is what bs_binlog_reserve_age said before that. */
void bs_binlog_update(bs_binlog *binlog, bs_job *job, uint32_t reserve_age, bs_now now);

/* A note of the job's present state, if a history is kept and there is room. */
void bs_binlog_append_deferred(bs_binlog *binlog, bs_job *job, uint32_t reserve_age, bs_now now);

/* The job has been reserved: an entry will tell of it. */
void bs_binlog_reserved(bs_binlog *binlog, bs_job *job);

/* If the job is reserved and no entry tells of that: for how long it has been, as in bs_entry; else 0. */
uint32_t bs_binlog_reserve_age(const bs_binlog *binlog, const bs_job *job, bs_now now);

/* Notes the reserves that nothing has told of for BS_PENDING_RESERVE_NS. */
void bs_binlog_write_pending_reserves(bs_binlog *binlog, bs_now now);

/* When a round is wanted, whatever else happens: the next such note, or room to be asked for again. INT64_MAX: never. */
int64_t bs_binlog_next_round(const bs_binlog *binlog);

/* The short entry of its end, BS_ENDED_ of entry.h, written while it is in its last state. 0, or -ENOSPC when B1 is broken. */
int bs_binlog_delete(bs_binlog *binlog, bs_job *job, uint32_t ended, bs_now now);

/* How long a reply that tells of this job, or of anything written so far, has to wait. */
bs_hold bs_binlog_hold_job(const bs_binlog *binlog, const bs_job *job);
bs_hold bs_binlog_hold(const bs_binlog *binlog);

/* --- rounds --- */

/* Compacts, then writes what was appended. 0 or BS_ERR_BINLOG. */
int bs_binlog_write(bs_binlog *binlog, bs_now now);

/* Is a sync due that is not under way? */
bool bs_binlog_sync_due(const bs_binlog *binlog, bs_now now);

/* When one will be, INT64_MAX: not before something is written. */
int64_t bs_binlog_next_sync(const bs_binlog *binlog);

/* Starts it on the sync thread, or does it here. 0 or BS_ERR_BINLOG. */
int bs_binlog_start_sync(bs_binlog *binlog);
int bs_binlog_sync_here(bs_binlog *binlog, bs_now now);

/* Takes notice of what the threads have done. 1 when a sync has ended, 0, or BS_ERR_BINLOG. */
int bs_binlog_poll(bs_binlog *binlog, bool wait, bs_now now);

/* Writes and syncs all, cuts the current file, removes the preallocator. 0 or BS_ERR_BINLOG. */
int bs_binlog_stop(bs_binlog *binlog, bs_now now);

/* Compacts on request: bs_core_compact. */
void bs_compact_more(bs_binlog *binlog, int64_t per_cent, bs_compact_state *state, bs_now now);

/* --- recovery (queue/recover.h) --- */

/* Adds a file that was read, in rising order. */
bs_binlog_file *bs_binlog_add_file(bs_binlog *binlog, uint32_t number, int64_t bytes);
bs_binlog_file *bs_binlog_find_file(const bs_binlog *binlog, uint32_t number);

/* Syncs or copies the files of these rising numbers, and syncs the folder (unsynced.c). Call it with the lock held and
 * before anything is read. Ignores files that are not regular. Returns 0, BS_ERR_BINLOG with the reason in `failed`, or
 * a negative errno with the name of a file that cannot be opened in `refused`. */
int bs_unsynced_settle(bs_binlog *binlog, const uint32_t *numbers, size_t count);

/* Compares the files that were read with their recorded lengths; reports shorter ones and marks them as damaged. */
void bs_lengths_check(const bs_binlog *binlog);

#endif
