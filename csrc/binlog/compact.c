/* Compaction: moves live jobs out of the oldest file that has any, so that the file can be removed.
 *
 * The jobs are found by reading the file piece by piece, so that a job needs no links for it.
 */
#include "binlog/binlog_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_io.h"
#include "binlog_files/entry.h"

enum { PIECE = 64 * 1024, MOST_MOVES = 1024, MOST_READ = 8192, MOST_BYTES = 1 << 20, DEAD_PER_ALIVE = 2 };

#define SEARCH_INTERVAL BS_SECOND

/* The position in the oldest file. */
struct bs_compaction {
    int fd; /* -1: none is open */
    uint32_t number;
    int version;
    int64_t offset; /* of the next entry */
    int64_t piece_at;
    int64_t piece_length;
    int64_t searched_at; /* mono; of the last search through all jobs */
    char piece[PIECE];
};

void bs_compaction_free(bs_compaction *compaction)
{
    if (!compaction)
        return;
    if (compaction->fd >= 0)
        (void)close(compaction->fd);
    free(compaction);
}

static bool read_piece(bs_compaction *compaction)
{
    ssize_t length = bs_io.read(compaction->fd, compaction->piece, PIECE, compaction->offset);
    compaction->piece_at = compaction->offset;
    compaction->piece_length = length > 0 ? length : 0;
    return length > 0;
}

static bool open_file(bs_binlog *binlog, uint32_t number)
{
    bs_compaction *compaction = binlog->compaction;
    if (compaction->fd >= 0 && compaction->number == number)
        return true;
    if (compaction->fd >= 0)
        (void)close(compaction->fd);
    char name[32];
    (void)snprintf(name, sizeof name, "binlog.%u", number);
    compaction->number = number;
    compaction->offset = 0;
    compaction->fd = bs_io.open(binlog->dir_fd, name, O_RDONLY);
    if (compaction->fd < 0 || !read_piece(compaction) || compaction->piece_length < BS_ENTRY_HEADER) {
        bs_events_log(binlog->events, BS_WARNING, "cannot read %s to compact it: %s", name, strerror(errno));
        return false;
    }
    memcpy(&compaction->version, compaction->piece, sizeof compaction->version);
    compaction->offset = BS_ENTRY_HEADER;
    return true;
}

/* Decodes the next entry; its body may lie outside of the piece. */
static bool next_entry(bs_compaction *compaction, bs_entry *entry)
{
    for (int tries = 0; tries < 2; tries++) {
        int64_t at = compaction->offset - compaction->piece_at;
        if (at >= 0 && at < compaction->piece_length) {
            int64_t size = bs_entry_decode(compaction->piece + at, (size_t)(compaction->piece_length - at),
                                           compaction->version, entry);
            if (size > 0 || (size == BS_ENTRY_CUT && entry->size > 0)) {
                compaction->offset += (int64_t)entry->size;
                return true;
            }
            if (size != BS_ENTRY_CUT)
                return false;
        }
        if (!read_piece(compaction))
            return false;
    }
    return false;
}

/* Finds the jobs that reading the file missed, because of damage or lack of space, by a search through all jobs. That
 * is slow and therefore rare. */
static void move_the_rest(bs_binlog *binlog, uint32_t number, bs_now now)
{
    if (now.mono < binlog->compaction->searched_at + SEARCH_INTERVAL)
        return;
    binlog->compaction->searched_at = now.mono;
    for (size_t i = 0; i < binlog->jobs->capacity; i++) {
        bs_job *job = binlog->jobs->slots[i];
        if (job && job->file == number && !bs_binlog_move(binlog, job, now))
            return;
    }
}

/* Returns the oldest file with a live job, or NULL if that is the current file. */
static const bs_binlog_file *oldest_in_use(const bs_binlog *binlog)
{
    for (uint32_t i = binlog->first_file; i + 1 < binlog->file_end; i++)
        if (binlog->files[i].jobs > 0)
            return &binlog->files[i];
    return NULL;
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

/* Reads on in this file and moves one job. Returns false if there was none or it cannot be moved. */
static bool move_one(bs_binlog *binlog, uint32_t number, int *reads, bs_now now)
{
    bs_entry entry;
    while ((*reads)-- > 0) {
        if (!next_entry(binlog->compaction, &entry)) {
            move_the_rest(binlog, number, now);
            return false;
        }
        if (entry.name_length == 0)
            continue;
        bs_job *job = bs_job_table_find(binlog->jobs, entry.id);
        if (job && job->file == number)
            return bs_binlog_move(binlog, job, now);
    }
    return false;
}

static bool begin(bs_binlog *binlog)
{
    if (binlog->compaction)
        return true;
    binlog->compaction = malloc(sizeof *binlog->compaction);
    if (!binlog->compaction)
        return false; /* the next round tries again */
    binlog->compaction->fd = -1;
    binlog->compaction->searched_at = INT64_MIN / 2;
    return true;
}

void bs_compact(bs_binlog *binlog, bs_now now)
{
    int64_t ratio = dead_per_alive(binlog);
    if (ratio < DEAD_PER_ALIVE || !begin(binlog))
        return;
    int64_t moves = binlog->appended * (ratio - 1);
    if (moves > MOST_MOVES)
        moves = MOST_MOVES;
    int reads = MOST_READ;
    while (moves-- > 0 && dead_per_alive(binlog) >= DEAD_PER_ALIVE) {
        const bs_binlog_file *oldest = oldest_in_use(binlog);
        /* A move may add a file and reallocate the list, so keep only the number. */
        uint32_t number = oldest ? oldest->number : 0;
        if (!oldest || !open_file(binlog, number) || !move_one(binlog, number, &reads, now))
            return;
    }
}

/* Returns whether a new file with the same jobs would be no smaller. */
static bool is_compact(const bs_binlog *binlog, int64_t per_cent)
{
    const int64_t alive = alive_bytes(binlog);
    bool alone = binlog->file_end - binlog->first_file == 1;
    return binlog->total * 100 <= alive * per_cent ||
           (alone && binlog->total <= alive + BS_ENTRY_HEADER + 2 * BS_ENTRY_SHORT);
}

/* Handles that no job is left in the files that existed at first, except perhaps the current one. */
static int only_new_left(bs_binlog *binlog, uint32_t last, bs_now now)
{
    if (binlog->files[binlog->file_end - 1].number <= last)
        return bs_binlog_next_file(binlog, now) ? BS_STEP_MORE : BS_STEP_WAIT;
    if (binlog->files[binlog->first_file].number > last)
        return BS_STEP_DONE;
    binlog->synced_at = INT64_MIN / 2; /* removes the others with the next sync */
    return BS_STEP_WAIT;
}

static int more(bs_binlog *binlog, int64_t per_cent, uint32_t last, bs_now now)
{
    const int64_t before = binlog->total;
    int reads = MOST_READ;
    if (!begin(binlog))
        return BS_STEP_WAIT;
    while (binlog->total - before < MOST_BYTES) {
        if (is_compact(binlog, per_cent))
            return BS_STEP_DONE;
        const bs_binlog_file *oldest = oldest_in_use(binlog);
        uint32_t number = oldest ? oldest->number : 0;
        if (!oldest || number > last)
            return only_new_left(binlog, last, now);
        if (!open_file(binlog, number) || !move_one(binlog, number, &reads, now))
            return reads > 0 ? BS_STEP_WAIT : BS_STEP_MORE;
    }
    return BS_STEP_MORE;
}

void bs_compact_more(bs_binlog *binlog, int64_t per_cent, bs_compact_state *state, bs_now now)
{
    if (state->last == 0)
        state->last = binlog->files[binlog->file_end - 1].number;
    state->outcome = more(binlog, per_cent, state->last, now);
    state->bytes = binlog->total;
    state->alive = alive_bytes(binlog);
}
