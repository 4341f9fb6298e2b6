/* Compaction: moves live jobs out of the oldest file that has any, so that the file can be removed.
 *
 * The jobs are found by reading the file piece by piece, so that a job needs no links for it.
 */
#include "binlog/binlog_private.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_io.h"
#include "binlog_files/scan.h"

enum { WINDOW = 64 * 1024, MOST_MOVES = 1024, MOST_READ = 8192, MOST_BYTES = 1 << 20, DEAD_PER_ALIVE = 2 };

#define SEARCH_INTERVAL BS_SECOND

/* The position in the oldest file. */
struct bs_compaction {
    bs_scan scan; /* its `fd` is -1: none is open */
    int64_t searched_at; /* mono; of the last search through all jobs */
};

void bs_compaction_free(bs_compaction *compaction)
{
    if (!compaction)
        return;
    bs_close(compaction->scan.fd);
    bs_scan_free(&compaction->scan);
    free(compaction);
}

static bool open_file(bs_binlog *binlog, uint32_t number)
{
    bs_scan *scan = &binlog->compaction->scan;
    if (scan->fd >= 0 && scan->number == number)
        return true;
    bs_close(scan->fd);
    scan->fd = bs_open_binlog(binlog->dir_fd, number, O_RDONLY);
    int error = scan->fd < 0 ? scan->fd : bs_scan_file(scan, scan->fd, number, UINT64_MAX);
    if (error < 0)
        bs_events_log(binlog->events, BS_WARNING, "cannot read binlog.%u to compact it: %s", number,
                      bs_open_error(error));
    return error >= 0;
}

/* Decodes the next entry; its body may lie outside of the window. */
static bool next_entry(bs_scan *scan, bs_entry *entry)
{
    size_t got;
    int error;
    const char *data = bs_scan_fetch(scan, scan->offset, BS_ENTRY_HEAD_MAX, &got, &error);
    int64_t size = data ? bs_entry_decode(data, got, scan->version, entry) : BS_ENTRY_BAD;
    if (size <= 0 && !(size == BS_ENTRY_CUT && entry->size > 0))
        return false;
    scan->offset += entry->size;
    return true;
}

/* Finds the jobs that reading the file missed, because of damage or lack of space, by a search through all jobs. That
 * is slow and therefore rare. */
static void move_missed_jobs(bs_binlog *binlog, uint32_t number, bs_now now)
{
    if (now.mono < binlog->compaction->searched_at + SEARCH_INTERVAL)
        return;
    binlog->compaction->searched_at = now.mono;
    for (size_t i = 0; i < binlog->jobs->capacity; i++) {
        bs_job *job = binlog->jobs->slots[i];
        if (job && job->file == number && !bs_binlog_move(binlog, job, now))
            return;
    }
    const bs_heap *keys = &binlog->ended_keys->by_time;
    for (uint32_t i = 0; i < keys->count; i++) {
        bs_ended_key *ended = keys->slots[i].item;
        if (ended->file == number && !bs_binlog_move_key(binlog, ended, now))
            return;
    }
}

/* Returns the record of the ended key whose entry in this file this is, or NULL. */
static bs_ended_key *ended_key_of(const bs_binlog *binlog, const bs_entry *entry, uint32_t number)
{
    if (!entry->attributes.until)
        return NULL;
    bs_ended_key *ended = bs_ended_find(binlog->ended_keys, entry->attributes.values.key);
    return ended && ended->file == number ? ended : NULL;
}

/* Returns the number of the oldest file with a live job, or 0 if that is the current file. */
static uint32_t oldest_in_use(const bs_binlog *binlog)
{
    for (uint32_t i = 0; i + 1 < binlog->file_count; i++)
        if (binlog->files[i].jobs > 0)
            return binlog->files[i].number;
    return 0;
}

static int64_t alive_bytes(const bs_binlog *binlog)
{
    return binlog->alive + (int64_t)binlog->owed * BS_ENTRY_SHORT;
}

static int64_t dead_per_alive(const bs_binlog *binlog)
{
    int64_t alive = alive_bytes(binlog);
    return alive > 0 ? (binlog->total - alive) / alive : 0;
}

/* Reads on in this file until a live job or an ended key is found, and moves it. Returns false if none was moved. */
static bool move_one(bs_binlog *binlog, uint32_t number, int *reads, bs_now now)
{
    bs_entry entry;
    if (!open_file(binlog, number))
        return false;
    while ((*reads)-- > 0) {
        if (!next_entry(&binlog->compaction->scan, &entry)) {
            move_missed_jobs(binlog, number, now);
            return false;
        }
        bs_ended_key *ended = ended_key_of(binlog, &entry, number);
        if (ended)
            return bs_binlog_move_key(binlog, ended, now);
        if (entry.name_length == 0)
            continue;
        bs_job *job = bs_job_table_find(binlog->jobs, entry.id);
        if (job && job->file == number)
            return bs_binlog_move(binlog, job, now);
    }
    return false;
}

static bool begin_compaction(bs_binlog *binlog)
{
    if (binlog->compaction)
        return true;
    bs_compaction *compaction = malloc(sizeof *compaction);
    if (!compaction || bs_scan_init(&compaction->scan, WINDOW) != 0) {
        free(compaction);
        return false; /* the next round tries again */
    }
    compaction->searched_at = INT64_MIN / 2;
    binlog->compaction = compaction;
    return true;
}

void bs_compact(bs_binlog *binlog, bs_now now)
{
    int64_t ratio = dead_per_alive(binlog);
    if (ratio < DEAD_PER_ALIVE || !begin_compaction(binlog))
        return;
    int64_t moves = binlog->appended * (ratio - 1);
    if (moves > MOST_MOVES)
        moves = MOST_MOVES;
    int reads = MOST_READ;
    while (moves-- > 0 && dead_per_alive(binlog) >= DEAD_PER_ALIVE) {
        const uint32_t oldest = oldest_in_use(binlog);
        if (oldest == 0 || !move_one(binlog, oldest, &reads, now))
            return;
    }
}

/* Returns whether the files have the wanted ratio, or one new file with the same jobs would be no smaller. */
static bool is_compact(const bs_binlog *binlog, int64_t per_cent)
{
    const int64_t alive = alive_bytes(binlog);
    return binlog->total * 100 <= alive * per_cent ||
           (binlog->file_count == 1 && binlog->total <= alive + BS_ENTRY_HEADER + 2 * BS_ENTRY_SHORT);
}

/* Continues when the files up to binlog.<last> have no jobs, except perhaps the current one: opens the next file, or
 * waits for the sync that removes the old ones. Returns a BS_STEP_ value. */
static int end_with_old_files(bs_binlog *binlog, uint32_t last, bs_now now)
{
    if (binlog->files[binlog->file_count - 1].number <= last)
        return bs_binlog_next_file(binlog, now) ? BS_STEP_MORE : BS_STEP_WAIT;
    if (binlog->files[0].number > last)
        return BS_STEP_DONE;
    binlog->synced_at = INT64_MIN / 2; /* removes the others with the next sync */
    return BS_STEP_WAIT;
}

/* Moves jobs out of the files up to binlog.<last>. Returns a BS_STEP_ value. */
static int move_some(bs_binlog *binlog, int64_t per_cent, uint32_t last, bs_now now)
{
    const int64_t before = binlog->total;
    int reads = MOST_READ;
    if (!begin_compaction(binlog))
        return BS_STEP_WAIT;
    while (binlog->total - before < MOST_BYTES) {
        if (is_compact(binlog, per_cent))
            return BS_STEP_DONE;
        const uint32_t oldest = oldest_in_use(binlog);
        if (oldest == 0 || oldest > last)
            return end_with_old_files(binlog, last, now);
        if (!move_one(binlog, oldest, &reads, now))
            return reads > 0 ? BS_STEP_WAIT : BS_STEP_MORE;
    }
    return BS_STEP_MORE;
}

void bs_compact_more(bs_binlog *binlog, int64_t per_cent, bs_compact_state *state, bs_now now)
{
    if (state->last == 0)
        state->last = binlog->files[binlog->file_count - 1].number;
    state->outcome = move_some(binlog, per_cent, state->last, now);
    state->bytes = binlog->total;
    state->alive = alive_bytes(binlog);
}
