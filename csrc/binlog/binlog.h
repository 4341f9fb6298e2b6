/* The binlog of a running server: appends entries, guarantees space, syncs, and removes files.
 *
 * The entries of a round are collected in a buffer, which bs_binlog_write writes to the current file at once. All
 * entries since the start of the last sync are one *generation*; a reply waits for the generation it depends on.
 *
 * With bs_config.history there are also *deferred entries*: short entries that only timelines need. They record a
 * reserve that lasts (pending_reserves.c), a touch, a timeout, or the return of a job whose client disconnected.
 * Recovery and compaction treat them as any entry. No reply waits for them, and they are dropped and counted if there
 * is no space. They reach the disk with the next sync, at the latest BS_DEFERRED_SYNC_NS after the first of them. With
 * a history, files that are no longer needed are renamed instead of removed (preallocation.h), and the durable position
 * is published (api/server.h).
 *
 * Invariants:
 *   B1  The current file and the preallocated ones have space for the short entries that end every live job (`owed`),
 *       so that every job can be deleted on a full disk: its delete, and its ended key, if it has a window. Only a start
 *       on a full disk can break this.
 *   B2  An entry never crosses files, and an attribute entry is in the file of the full entry behind it.
 *   B3  Only the oldest file is removed, only when no live job has its full entry there and no ended key its entry, and
 *       only after the sync of everything written when the last of them left it.
 *   B4  After a failed write or sync nothing is written, synced or acknowledged any more (`failed`).
 *   B5  `alive` is the number of bytes that a reader still needs: for each live job its full entry with the attribute
 *       entry before it, its last short entry and the short entries owed; and the entry of each ended key. A short entry
 *       that a later one replaces is dead.
 *   B6  Everything that recovery has read is on disk before anything depends on it, and so is every file before
 *       `unsynced_from` (unsynced.c).
 *   B7  A file records the length of an earlier one only after the sync of that one, so a shorter one is damaged. With
 *       -F it records the length after the write, for the present boot only (lengths.c).
 */
#ifndef BS_BINLOG_H
#define BS_BINLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "api/server.h"
#include "base/clock.h"
#include "base/event_queue.h"
#include "base/file_io.h"
#include "binlog/body_memory.h"
#include "binlog/preallocation.h"
#include "binlog/replica.h"
#include "binlog/sync_thread.h"
#include "binlog_files/boot_id.h"
#include "jobs/job.h"
#include "jobs/unique_keys.h"

typedef struct bs_compaction bs_compaction;

/* How long deferred entries wait for another sync, and how long a reserve waits for another entry of its job. */
#define BS_DEFERRED_SYNC_NS BS_SECOND
#define BS_PENDING_RESERVE_NS (BS_SECOND / 2)

typedef struct {
    uint64_t id;   /* of a job */
    int64_t since; /* mono; when it was reserved */
} bs_pending_reserve;

/* Reserves that no entry records yet, oldest first (pending_reserves.c). */
typedef struct {
    bs_pending_reserve *ring;
    uint32_t head;
    uint32_t count;
    uint32_t capacity; /* a power of two, or 0 */
} bs_pending_reserves;

/* A file with entries. The last one is the current file. */
typedef struct {
    uint32_t number;
    uint32_t jobs;      /* live, with their full entry here, and ended keys */
    int64_t bytes;      /* used */
    uint64_t empty_gen; /* the generation after which no live job is here */
    int64_t unused;     /* bytes on disk of a preallocated file that was never written to, or 0 */
    bool damaged;       /* renamed to .bad rather than removed */
    bool used;          /* entries of jobs were read from it or appended to it */
    bool has_length;    /* a later file records its length, or it has no entry of a job */
    bool end_unreadable; /* its end could not be read, which was logged */
    uint64_t complete_gen; /* the generation with its last entry; 0: from before the start */
    uint32_t length_in; /* the file that records its length */
    int64_t length;     /* bytes, as recorded */
    uint64_t length_boot; /* as in bs_entry */
} bs_binlog_file;

typedef struct {
    const bs_job_table *jobs;
    bs_ended_keys *ended_keys; /* of the queue */
    bs_counters *counters;
    bs_shared *shared;
    bs_events *events;
    int64_t file_size; /* bytes of a new file; a larger entry gets a larger file */
    int64_t sync_interval_ns; /* as in bs_config */
    bool history;
    int dir_fd;
    int lock_fd;
    int wake_fd;

    bs_binlog_file *files; /* rising numbers; the last is current */
    uint32_t file_count;
    size_t file_capacity;
    uint32_t lengths_missing; /* complete files without has_length */
    bs_boot boot;
    uint32_t last_number; /* highest number of any file */
    bs_file_name unopened; /* the file that could not be opened, which prevents the start */
    uint32_t done_files; /* found at the start, waiting for an archiver */
    int64_t done_bytes;

    int fd;           /* of the current file */
    int64_t size;     /* of the current file, bytes */
    int64_t written;  /* bytes of it given to the kernel */
    int64_t end;      /* with the buffer */
    bs_bytes buffer;
    bs_sync_file *complete; /* files completed in this generation */
    size_t complete_count;
    size_t complete_capacity;

    bs_preallocated *ready; /* preallocated files, next first */
    uint32_t ready_count;
    size_t ready_capacity;
    uint64_t ready_short_entries; /* that fit into them */
    uint32_t files_requested;
    uint32_t files_ahead; /* files beyond what B1 needs */
    int64_t retry_file_at; /* mono; no file is requested before */
    bool file_failed;      /* the last requested file could not be made, which was logged */
    bool full;             /* puts are refused because there is no space, which was logged */
    int64_t full_size;     /* bytes of the smallest entry refused since `full` */

    uint64_t owed;  /* short entries for which space is guaranteed: bs_entry_owed of each live job */
    int64_t total;  /* bytes used in all files */
    int64_t alive;  /* without what is owed */
    uint32_t appended; /* entries since the last bs_binlog_write, moves not counted */
    uint32_t kept_by;  /* slot of the session whose jobs stay reserved after any end (BS_ENTRY_KEPT) */

    uint64_t gen;      /* of the entries that are appended now */
    bool dirty;        /* this generation has entries that are not deferred */
    bs_pending_reserves pending_reserves;
    bool deferred;        /* this generation has deferred entries */
    int64_t deferred_at;  /* mono; of the first of them */
    uint64_t entries_before; /* records_written when this generation began */
    uint64_t syncing_entries; /* entries of `syncing` */
    uint64_t syncing;  /* the generation being synced, or 0 */
    bool on_disk;      /* it is, and it waits for the replicator */
    int64_t offered_at; /* mono; since when it waits */
    int64_t sync_took; /* nanoseconds of its sync */
    bool syncing_dirty; /* `dirty` of `syncing` */
    uint32_t sync_file; /* where it ends */
    int64_t sync_end;
    uint64_t synced;   /* the last one on disk */
    int64_t synced_at; /* mono */
    int failed;        /* B4: negative errno */
    const char *failed_call;
    uint32_t failed_file;       /* at the start: its number; 0: the folder */
    uint32_t unsynced_from;     /* as recorded in the lock file (unsynced.c), or 0 */
    bool unsynced_unwritable;   /* that was logged */

    bs_compaction *compaction;
    bs_bodies bodies;

    const bs_replica *replica; /* of the caller, which sets it before the start; NULL: not replicated */

    bs_syncer *syncer;
    bs_preallocator *preallocator;
} bs_binlog;

/* Opens the folder; reads nothing. Returns NULL with the reason in `error`: BS_ERR_FOLDER or a negative errno. The caller keeps the pointers and `wake_fd`. */
bs_binlog *bs_binlog_new(const bs_config *config, const bs_job_table *jobs, bs_counters *counters, bs_shared *shared,
                         bs_events *events, int wake_fd, int *error);

/* Opens the first file after recovery (csrc/recovery) has filled `files`. Unused files at the end of the numbers
 * become preallocated files, so that a start needs no new disk space. Returns 0 or a negative errno. */
int bs_binlog_start(bs_binlog *binlog, bs_now now);

/* Releases the lock and all descriptors; writes nothing. Ignores NULL. */
void bs_binlog_free(bs_binlog *binlog);

/* --- appending; every function accepts a NULL binlog and then does nothing --- */

/* Appends the full entry of a new job, and its attribute entry. Returns 0, -ENOSPC or -ENOMEM. */
int bs_binlog_put(bs_binlog *binlog, bs_job *job, bs_now now);

/* Makes sure that one more short entry fits, beyond those owed. May open the next file and wait for the disk. Returns
 * false if there is no space. */
bool bs_binlog_reserve_space(bs_binlog *binlog, bs_now now);

/* Appends a short entry with the job's present state; call bs_binlog_reserve_space before. `reserve_age` is
 * bs_binlog_reserve_age of the job before it changed. */
void bs_binlog_update(bs_binlog *binlog, bs_job *job, uint32_t reserve_age, bs_now now);

/* Appends a deferred entry with the job's present state, if a history is kept and there is space. */
void bs_binlog_append_deferred(bs_binlog *binlog, bs_job *job, uint32_t reserve_age, bs_now now);

/* Like bs_binlog_append_deferred, but also without a history: a policy needs the job's counters after a restart. */
void bs_binlog_append_counters(bs_binlog *binlog, bs_job *job, uint32_t reserve_age, bs_now now);

/* Appends an entry that keeps the reservation of a job beyond a stop. Returns false if there is no space. */
bool bs_binlog_keep_reserved(bs_binlog *binlog, bs_job *job, bs_now now);

/* Makes the reserve of this job a pending one, which a later entry records. */
void bs_binlog_reserved(bs_binlog *binlog, bs_job *job);

/* Returns how long the job has been reserved if no entry records that yet, as in bs_entry; else 0. */
uint32_t bs_binlog_reserve_age(const bs_binlog *binlog, const bs_job *job, bs_now now);

/* Appends deferred entries for reserves that no entry has recorded within BS_PENDING_RESERVE_NS. */
void bs_binlog_write_pending_reserves(bs_binlog *binlog, bs_now now);

/* Returns when a round is needed for pending reserves or to request a file again (mono); INT64_MAX: never. */
int64_t bs_binlog_next_round(const bs_binlog *binlog);

/* Appends the short entry for the end of a job, BS_ENDED_ of entry.h, while the job still has its last state. Returns
 * 0, or -ENOSPC if B1 is broken. */
int bs_binlog_delete(bs_binlog *binlog, bs_job *job, uint32_t ended, bs_now now);

/* Appends the entry of an ended key before the delete of its job. Returns 0, or -ENOSPC if B1 is broken. */
int bs_binlog_end_key(bs_binlog *binlog, bs_ended_key *ended, bs_now now);

/* The record of an ended key is about to be removed: its entry is not needed any more. */
void bs_binlog_forget_key(bs_binlog *binlog, bs_ended_key *ended);

/* Returns whether there is space for the ends of all jobs (B1). */
bool bs_binlog_can_delete_all(const bs_binlog *binlog);

/* How long a reply is held back until the entries it depends on are synced. */
typedef enum { BS_HOLD_NONE, BS_HOLD_SYNCING, BS_HOLD_WRITTEN } bs_hold;

/* Returns the hold of a reply that depends on this job's entries, on all entries so far, or on those of a generation
 * (0: none). */
bs_hold bs_binlog_hold_job(const bs_binlog *binlog, const bs_job *job);
bs_hold bs_binlog_hold(const bs_binlog *binlog);
bs_hold bs_binlog_hold_generation(const bs_binlog *binlog, uint64_t generation);

/* The same for all entries so far, also if other replies do not wait for a sync, unless nothing is ever synced. */
bs_hold bs_binlog_hold_until_sync(const bs_binlog *binlog);

/* Returns the generation of the entries that are appended now; 0 without a binlog. */
static inline uint64_t bs_binlog_generation(const bs_binlog *binlog)
{
    return binlog ? binlog->gen : 0;
}

/* --- rounds --- */

/* Compacts, then writes what was appended. Returns 0 or BS_ERR_BINLOG. */
int bs_binlog_write(bs_binlog *binlog, bs_now now);

bool bs_binlog_sync_due(const bs_binlog *binlog, bs_now now);

/* Returns when the next sync is due (mono), INT64_MAX if nothing needs one. */
int64_t bs_binlog_next_sync(const bs_binlog *binlog);

/* Syncs on the sync thread, or in this thread. Returns 0 or BS_ERR_BINLOG. */
int bs_binlog_start_sync(bs_binlog *binlog);
int bs_binlog_sync_here(bs_binlog *binlog, bs_now now);

/* Handles the results of the two threads. Returns 1 if a sync has ended, 0, or BS_ERR_BINLOG. */
int bs_binlog_poll(bs_binlog *binlog, bool wait, bs_now now);

/* Writes and syncs everything, truncates the current file, removes preallocated files. Returns 0 or BS_ERR_BINLOG. */
int bs_binlog_stop(bs_binlog *binlog, bs_now now);

/* Compacts on request: bs_core_compact. */
void bs_compact_more(bs_binlog *binlog, int64_t per_cent, bs_compact_state *state, bs_now now);

/* Makes sure that a job's body is in memory until the next call or put (body_memory.h). Returns 0, BS_BODY_DAMAGED, or a
 * negative errno if it cannot be read now; both are logged. */
int bs_body_load(bs_binlog *binlog, bs_job *job);

#define BS_BODY_DAMAGED (-EBADMSG)

/* --- recovery (csrc/recovery) --- */

/* Adds a file that was read, in rising order. */
bs_binlog_file *bs_binlog_add_file(bs_binlog *binlog, uint32_t number, int64_t bytes);
bs_binlog_file *bs_binlog_find_file(const bs_binlog *binlog, uint32_t number);

/* Takes the lock of the folder, and keeps it. Returns 0, BS_ERR_LOCKED, or a negative errno. */
int bs_binlog_lock(bs_binlog *binlog);

/* Syncs or copies the files of these rising numbers, and syncs the folder (unsynced.c). Call it with the lock held and
 * before anything is used. With `is_copy` another process has written and synced all of them, so none is suspect.
 * Ignores files that are not regular. Returns 0, BS_ERR_BINLOG with the reason in `failed`, or a negative errno with the
 * name of a file that cannot be opened in `refused`. */
int bs_unsynced_settle(bs_binlog *binlog, const uint32_t *numbers, size_t count, bool is_copy);

/* Compares the files that were read with their recorded lengths; reports shorter ones and marks them as damaged. */
void bs_lengths_check(const bs_binlog *binlog);

#endif
