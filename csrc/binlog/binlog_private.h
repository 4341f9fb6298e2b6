/* Functions that the files of csrc/binlog share. No other folder includes this header. */
#ifndef BS_BINLOG_PARTS_H
#define BS_BINLOG_PARTS_H

#include "binlog/binlog.h"
#include "binlog_files/entry.h"

static inline bs_binlog_file *bs_binlog_current_file(const bs_binlog *binlog)
{
    return &binlog->files[binlog->file_count - 1];
}

/* Returns an id that no job has, for entries that are none of a job. */
static inline uint64_t bs_binlog_unused_id(const bs_binlog *binlog)
{
    const uint64_t last_id = __atomic_load_n(&binlog->shared->last_id, __ATOMIC_RELAXED);
    return last_id < INT64_MAX ? last_id + 1 : INT64_MAX;
}

/* --- append.c --- */

/* Keeps the first failure (B4). */
void bs_binlog_fail(bs_binlog *binlog, const char *call, int error);

/* Removes files that are no longer needed (B3). */
void bs_binlog_collect(bs_binlog *binlog);

void bs_binlog_write_buffer(bs_binlog *binlog);

/* Opens the next preallocated file; there must be one. */
void bs_binlog_open_next(bs_binlog *binlog, bs_now now);

/* Makes the entries appended since `was_dirty` was the value of `dirty` deferred: no reply waits for them. */
void bs_binlog_only_deferred(bs_binlog *binlog, bool was_dirty, bs_now now);

/* Completes the current file and opens the next. Returns false if there is no space for one. */
bool bs_binlog_next_file(bs_binlog *binlog, bs_now now);

/* Rewrites the full entry of a job in the current file, unless it is damaged. Returns false if there is no space or the
 * job's body cannot be read now. */
bool bs_binlog_move(bs_binlog *binlog, bs_job *job, bs_now now);

/* Rewrites the entry of an ended key in the current file. Returns false if there is no space. */
bool bs_binlog_move_key(bs_binlog *binlog, bs_ended_key *ended, bs_now now);

/* Handles a damaged full entry: the job is in no file then (M5). */
void bs_binlog_leave_damaged(bs_binlog *binlog, bs_job *job);

/* --- space.c --- */

/* Returns whether an entry of this size fits into the current file, or into the first preallocated file that is large
 * enough, and after it `owed` short ones, there and in the files behind it. Files before that one stay empty. */
bool bs_space_in_current(const bs_binlog *binlog, int64_t size, uint64_t owed);
bool bs_space_in_next(const bs_binlog *binlog, int64_t size, uint64_t owed);

/* Takes a file that the file thread has made. Returns false if there is none. */
bool bs_space_take(bs_binlog *binlog, bool wait, bs_now now);

/* Handles a refused entry: the binlog becomes `full`, unless the entry needs a file of its own. */
void bs_space_refused(bs_binlog *binlog, int64_t size);

/* Ends `full` when the smallest refused entry fits again. */
void bs_space_update_full(bs_binlog *binlog);

/* Waits for a file, a larger one if an entry of `size` bytes needs it. This is the only wait for the disk inside a
 * command; preallocation makes it rare. */
bool bs_space_wait(bs_binlog *binlog, int64_t size, bs_now now);

/* Increases the number of files to preallocate, because a deferred entry found no space. */
void bs_space_ran_out(bs_binlog *binlog);

/* Requests the files that B1 needs and some more, and gives back surplus ones. */
void bs_space_request_ahead(bs_binlog *binlog, bs_now now);

/* Adds a preallocated file behind the others. */
void bs_space_add(bs_binlog *binlog, bs_preallocated ready);

/* Takes the next file; there must be one. */
bs_preallocated bs_space_next_file(bs_binlog *binlog);

/* Bytes of the smallest file: the entry with the highest id, and one more. */
enum { BS_SPACE_FILE_MIN = BS_ENTRY_HEADER + 2 * BS_ENTRY_SHORT };

/* Makes sure of a file to start with. Returns 0 or a negative errno. */
int bs_space_first_file(bs_binlog *binlog);

/* --- pending_reserves.c --- */

/* Appends deferred entries for the pending reserves up to this time, mono, before INT64_MAX. */
void bs_binlog_write_reserves_until(bs_binlog *binlog, int64_t until, bs_now now);

/* --- flush.c --- */

/* Ends the generation and returns its files, the current one last. */
bs_sync_file *bs_binlog_begin_sync(bs_binlog *binlog, size_t *count);

/* `syncing` is on the disk: offers it to the replicator the first time. Returns 1 if the replicator has stored it, or if
 * there is none; 0 if it has not; a negative errno after a failure, which the binlog keeps. `wait` as in
 * bs_replica_stored. */
int bs_binlog_replicated(bs_binlog *binlog, bool wait, bs_now now);

/* Returns 1 or BS_ERR_BINLOG. `took` is nanoseconds, or -1 if nothing was synced. */
int bs_binlog_end_sync(bs_binlog *binlog, int error, int64_t took, bs_now now);

void bs_binlog_set_durable_position(const bs_binlog *binlog, uint32_t file, int64_t end);

/* --- compact.c --- */

/* Moves jobs if there are twice as many dead bytes as live ones. The number of jobs grows with the share of dead bytes
 * and with the entries appended since the last write. */
void bs_compact(bs_binlog *binlog, bs_now now);

/* Ignores NULL. */
void bs_compaction_free(bs_compaction *compaction);

/* --- lengths.c --- */

/* Counts the files that lack a recorded length on which this server can rely; call it after bs_lengths_check. */
void bs_lengths_begin(bs_binlog *binlog);

/* Appends missing lengths to the current file, as far as there is space that is not owed. */
void bs_lengths_append(bs_binlog *binlog, bs_now now);

/* If the number of the current file does not follow that of the file before it, records in it that the files between
 * them never existed. Call it when the file is opened. */
void bs_lengths_append_gap(bs_binlog *binlog, bs_now now);

/* At a stop, after the last sync: turns the first preallocated file into a small file with the missing lengths. Returns
 * false if no length is missing or the file could not be written. */
bool bs_lengths_finish(bs_binlog *binlog, bs_now now);

/* --- unsynced.c --- */

/* Records in the lock file that all files before binlog.<number> are on disk. Writes only if the number changed. */
void bs_unsynced_from(bs_binlog *binlog, uint32_t number);

/* Records that all files are on disk. */
void bs_unsynced_none(bs_binlog *binlog);

#endif
