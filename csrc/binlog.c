#include "binlog.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc.h"
#include "compact.h"
#include "entry.h"
#include "io.h"
#include "room.h"

enum { SMALLEST = 16 };

/* --- files ------------------------------------------------------------------------------------------ */

static bs_binlog_file *current(const bs_binlog *binlog)
{
    return &binlog->files[binlog->file_end - 1];
}

bs_binlog_file *bs_binlog_add_file(bs_binlog *binlog, uint32_t number, int64_t bytes)
{
    if (binlog->file_end == binlog->file_capacity) {
        uint32_t count = binlog->file_end - binlog->first_file;
        if (count > 0)
            memmove(binlog->files, binlog->files + binlog->first_file, count * sizeof *binlog->files);
        binlog->first_file = 0;
        binlog->file_end = count;
        if (count >= binlog->file_capacity / 2) {
            binlog->file_capacity = binlog->file_capacity ? binlog->file_capacity * 2 : SMALLEST;
            binlog->files = bs_must_realloc(binlog->files, binlog->file_capacity, sizeof *binlog->files);
        }
    }
    bs_binlog_file *file = &binlog->files[binlog->file_end++];
    *file = (bs_binlog_file){.number = number, .bytes = bytes, .empty_gen = binlog->gen};
    binlog->total += bytes;
    binlog->counters->binlog_oldest = binlog->files[binlog->first_file].number;
    return file;
}

bs_binlog_file *bs_binlog_find_file(const bs_binlog *binlog, uint32_t number)
{
    uint32_t low = binlog->first_file;
    uint32_t high = binlog->file_end;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (binlog->files[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < binlog->file_end && binlog->files[low].number == number ? &binlog->files[low] : NULL;
}

static void fail(bs_binlog *binlog, const char *call, int error)
{
    if (binlog->failed)
        return;
    binlog->failed = error;
    binlog->failed_call = call;
}

/* From the oldest on (B3). */
static void collect(bs_binlog *binlog)
{
    uint64_t safe = binlog->sync_interval_ns < 0 ? binlog->gen : binlog->synced;
    while (binlog->file_end - binlog->first_file > 1) {
        bs_binlog_file *oldest = &binlog->files[binlog->first_file];
        if (oldest->jobs > 0 || oldest->empty_gen > safe || binlog->failed)
            return;
        if (oldest->damaged)
            bs_events_log(binlog->events, BS_WARNING,
                          "binlog.%u had unreadable entries and is not removed but kept as binlog.%u.bad",
                          oldest->number, oldest->number);
        bs_spares_retire(binlog->spares, oldest->number, oldest->damaged);
        binlog->total -= oldest->bytes;
        binlog->first_file++;
        binlog->refused_until = INT64_MIN; /* there may be room again */
        binlog->counters->binlog_oldest = binlog->files[binlog->first_file].number;
    }
}

static void job_left(bs_binlog *binlog, const bs_job *job)
{
    bs_binlog_file *file = bs_binlog_find_file(binlog, job->file);
    assert(file && file->jobs > 0);
    if (--file->jobs == 0)
        file->empty_gen = binlog->gen;
}

/* --- appending -------------------------------------------------------------------------------------- */

/* Room at the end of the buffer for one entry. */
static char *append_room(bs_binlog *binlog, size_t size)
{
    assert(binlog->end + (int64_t)size <= binlog->size); /* B2 */
    char *room = bs_bytes_room(&binlog->buffer, size);
    if (!room)
        abort();
    return room;
}

static void appended(bs_binlog *binlog, size_t size)
{
    bs_bytes_extend(&binlog->buffer, size);
    binlog->end += (int64_t)size;
    binlog->total += (int64_t)size;
    current(binlog)->bytes = binlog->end;
    binlog->dirty = true;
    binlog->counters->records_written++;
}

static void append(bs_binlog *binlog, const bs_job *job, uint8_t state, int64_t at, bool full)
{
    char *room = append_room(binlog, full ? bs_entry_full_size(job) : BS_ENTRY_SHORT);
    appended(binlog, bs_entry_encode(room, job, state, at, full, current(binlog)->number));
}

/* deadline_at of an entry: of a job that has a deadline that one, else the time of its last event. */
static int64_t entry_time(const bs_job *job, bs_now now)
{
    return job->state == BS_DELAYED || job->state == BS_RESERVED ? job->at - now.mono + now.wall : job->at;
}

static void set_gen(const bs_binlog *binlog, bs_job *job)
{
    job->gen = binlog->gen & BS_JOB_GEN_MASK;
}

static void write_buffer(bs_binlog *binlog)
{
    size_t length = bs_bytes_length(&binlog->buffer);
    if (length == 0 || binlog->failed)
        return;
    int error = bs_io_write_all(bs_io.write, binlog->fd, bs_bytes_data(&binlog->buffer), length, binlog->written);
    if (error) {
        fail(binlog, "write", error);
        return;
    }
    binlog->written += (int64_t)length;
    /* Kept for the next round: growing it again and again would cost more than it holds. */
    binlog->buffer.start = 0;
    binlog->buffer.end = 0;
}

/* The highest id so far is the first thing in a file, so that ids rise even when no job is left to tell. A reader
 * deletes the job that an Invalid entry names, so not if one has that id; its own entries tell it. */
static void append_last_id(bs_binlog *binlog, bs_now now)
{
    uint64_t id = __atomic_load_n(&binlog->shared->last_id, __ATOMIC_RELAXED);
    if (id == 0 || bs_job_table_find(binlog->jobs, id))
        return;
    char *room = append_room(binlog, BS_ENTRY_SHORT);
    appended(binlog, bs_entry_encode_last_id(room, id, now.wall, current(binlog)->number));
}

static void open_spare(bs_binlog *binlog, bs_now now)
{
    bs_spare next = bs_room_open(binlog);
    (void)bs_binlog_add_file(binlog, next.number, BS_ENTRY_HEADER);
    binlog->counters->binlog_current = next.number;
    binlog->fd = next.fd;
    binlog->size = next.size;
    binlog->written = BS_ENTRY_HEADER;
    binlog->end = BS_ENTRY_HEADER;
    append_last_id(binlog, now);
}

/* Completes the current file and goes on with the next. */
static void roll(bs_binlog *binlog, bs_now now)
{
    write_buffer(binlog);
    if (binlog->complete_count == binlog->complete_capacity) {
        binlog->complete_capacity = binlog->complete_capacity ? binlog->complete_capacity * 2 : 4;
        /* One more for the current file, which bs_binlog_start_sync adds. */
        binlog->complete = bs_must_realloc(binlog->complete, binlog->complete_capacity + 1, sizeof *binlog->complete);
    }
    binlog->complete[binlog->complete_count++] = (bs_sync_file){binlog->fd, binlog->end};
    binlog->dirty = true;
    if (current(binlog)->jobs == 0)
        current(binlog)->empty_gen = binlog->gen;
    open_spare(binlog, now);
}

/* Makes room for an entry after which `owed` short ones still fit. */
static bool make_room(bs_binlog *binlog, int64_t size, uint64_t owed, bs_now now)
{
    if (binlog->failed)
        return false;
    while (!bs_room_current(binlog, size, owed)) {
        if (bs_room_next(binlog, size, owed))
            roll(binlog, now);
        else if (!bs_room_wait(binlog, now))
            return false;
    }
    return true;
}

int bs_binlog_put(bs_binlog *binlog, bs_job *job, bs_now now)
{
    if (!binlog)
        return 0;
    int64_t size = (int64_t)bs_entry_full_size(job);
    if (size > bs_room_per_file(binlog)) {
        bs_events_log(binlog->events, BS_WARNING,
                      "a job of %lld bytes was refused: it does not fit into a binlog file of %lld bytes (-s)",
                      (long long)size, (long long)binlog->file_size);
        return -ENOSPC;
    }
    if (!make_room(binlog, size, binlog->owed + 1, now) || !bs_bytes_room(&binlog->buffer, (size_t)size))
        return -ENOSPC;
    append(binlog, job, (uint8_t)job->state, entry_time(job, now), true);
    binlog->appended++;
    set_gen(binlog, job);
    job->file = current(binlog)->number;
    current(binlog)->jobs++;
    binlog->owed++;
    binlog->alive += size;
    return 0;
}

bool bs_binlog_room(bs_binlog *binlog, bs_now now)
{
    return !binlog || make_room(binlog, BS_ENTRY_SHORT, binlog->owed, now);
}

void bs_binlog_update(bs_binlog *binlog, bs_job *job, bs_now now)
{
    if (!binlog)
        return;
    append(binlog, job, (uint8_t)job->state, entry_time(job, now), false);
    binlog->appended++;
    set_gen(binlog, job);
    if (!job->has_short)
        binlog->alive += BS_ENTRY_SHORT;
    job->has_short = 1;
}

int bs_binlog_delete(bs_binlog *binlog, bs_job *job, bs_now now)
{
    if (!binlog)
        return 0;
    /* It takes the room of one and is owed one less, so B1 needs no look. */
    if (!make_room(binlog, BS_ENTRY_SHORT, 0, now))
        return -ENOSPC;
    append(binlog, job, BS_INVALID, now.wall, false);
    binlog->appended++;
    binlog->owed--;
    binlog->alive -= (int64_t)bs_entry_full_size(job) + (job->has_short ? BS_ENTRY_SHORT : 0);
    job_left(binlog, job);
    return 0;
}

bool bs_binlog_move(bs_binlog *binlog, bs_job *job, bs_now now)
{
    int64_t size = (int64_t)bs_entry_full_size(job);
    if (!make_room(binlog, size, binlog->owed, now))
        return false;
    append(binlog, job, (uint8_t)job->state, entry_time(job, now), true);
    binlog->counters->records_migrated++;
    job_left(binlog, job);
    job->file = current(binlog)->number;
    current(binlog)->jobs++;
    if (job->has_short)
        binlog->alive -= BS_ENTRY_SHORT;
    job->has_short = 0;
    return true;
}

/* --- syncing ---------------------------------------------------------------------------------------- */

bs_hold bs_binlog_hold(const bs_binlog *binlog)
{
    if (!binlog || binlog->sync_interval_ns != 0)
        return BS_HOLD_NONE;
    return binlog->dirty ? BS_HOLD_WRITTEN : binlog->syncing ? BS_HOLD_SYNCING : BS_HOLD_NONE;
}

bs_hold bs_binlog_hold_job(const bs_binlog *binlog, const bs_job *job)
{
    if (!binlog || binlog->sync_interval_ns != 0)
        return BS_HOLD_NONE;
    if (binlog->dirty && job->gen == (binlog->gen & BS_JOB_GEN_MASK))
        return BS_HOLD_WRITTEN;
    return binlog->syncing && job->gen == (binlog->syncing & BS_JOB_GEN_MASK) ? BS_HOLD_SYNCING : BS_HOLD_NONE;
}

int bs_binlog_write(bs_binlog *binlog, bs_now now)
{
    if (!binlog)
        return 0;
    if (binlog->appended) {
        bs_compact(binlog, now);
        binlog->appended = 0;
    }
    write_buffer(binlog);
    bs_room_ask_ahead(binlog, now);
    if (binlog->failed)
        return BS_ERR_BINLOG;
    if (binlog->sync_interval_ns < 0) {
        /* -F: nothing is synced, but what is complete is cut and closed, and files go when nobody needs them. */
        int error = bs_sync_files(binlog->complete, binlog->complete_count, false);
        binlog->complete_count = 0;
        binlog->dirty = false;
        if (error) {
            fail(binlog, "truncate", error);
            return BS_ERR_BINLOG;
        }
        collect(binlog);
    }
    return 0;
}

int64_t bs_binlog_next_sync(const bs_binlog *binlog)
{
    if (!binlog || !binlog->dirty || binlog->syncing || binlog->sync_interval_ns < 0)
        return INT64_MAX;
    return binlog->sync_interval_ns == 0 ? INT64_MIN : binlog->synced_at + binlog->sync_interval_ns;
}

bool bs_binlog_sync_due(const bs_binlog *binlog, bs_now now)
{
    int64_t at = bs_binlog_next_sync(binlog);
    return at != INT64_MAX && at <= now.mono;
}

/* The files of this generation, the current one last; the generation ends here. */
static bs_sync_file *begin_sync(bs_binlog *binlog, size_t *count)
{
    if (!binlog->complete)
        binlog->complete = bs_must_realloc(NULL, 1, sizeof *binlog->complete);
    binlog->complete[binlog->complete_count] = (bs_sync_file){binlog->fd, -1};
    *count = binlog->complete_count + 1;
    binlog->complete_count = 0;
    binlog->syncing = binlog->gen++;
    binlog->dirty = false;
    return binlog->complete;
}

static int end_sync(bs_binlog *binlog, int error, bs_now now)
{
    if (error) {
        fail(binlog, "sync", error);
        return BS_ERR_BINLOG;
    }
    binlog->synced = binlog->syncing;
    binlog->syncing = 0;
    binlog->synced_at = now.mono;
    binlog->counters->syncs++;
    collect(binlog);
    return 1;
}

int bs_binlog_start_sync(bs_binlog *binlog)
{
    assert(!binlog->syncing && bs_bytes_length(&binlog->buffer) == 0);
    size_t count;
    const bs_sync_file *files = begin_sync(binlog, &count);
    int error = bs_syncer_start(binlog->syncer, files, count);
    if (error)
        fail(binlog, "sync", error);
    return error ? BS_ERR_BINLOG : 0;
}

int bs_binlog_sync_here(bs_binlog *binlog, bs_now now)
{
    assert(!binlog->syncing && bs_bytes_length(&binlog->buffer) == 0);
    size_t count;
    const bs_sync_file *files = begin_sync(binlog, &count);
    int result = end_sync(binlog, bs_sync_files(files, count, true), now);
    return result < 0 ? result : 0;
}

int bs_binlog_poll(bs_binlog *binlog, bool wait, bs_now now)
{
    if (!binlog)
        return 0;
    while (bs_room_take(binlog, false, now))
        continue;
    int error = bs_spares_retire_error(binlog->spares);
    if (error)
        bs_events_log(binlog->events, BS_WARNING, "cannot remove a binlog file that is no longer needed: %s",
                      strerror(-error));
    if (!binlog->syncing || !bs_syncer_ended(binlog->syncer, wait, &error))
        return 0;
    return end_sync(binlog, error, now);
}

/* --- life ------------------------------------------------------------------------------------------- */

static int take_lock(bs_binlog *binlog)
{
    binlog->lock_fd = bs_io.open(binlog->dir_fd, "lock", O_RDWR | O_CREAT);
    if (binlog->lock_fd < 0)
        return -errno;
    if (bs_io.lock(binlog->lock_fd) == 0)
        return 0;
    return errno == EACCES || errno == EAGAIN ? BS_ERR_LOCKED : -errno;
}

static int take_folder(bs_binlog *binlog, const bs_config *config, int wake_fd)
{
    binlog->dir_fd = open(config->binlog_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (binlog->dir_fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? BS_ERR_FOLDER : -errno;
    int error = take_lock(binlog);
    if (error)
        return error;
    binlog->wake_fd = wake_fd;
    binlog->syncer = bs_syncer_new(wake_fd);
    return binlog->syncer ? 0 : -ENOMEM;
}

bs_binlog *bs_binlog_new(const bs_config *config, const bs_job_table *jobs, bs_counters *counters, bs_shared *shared,
                         bs_events *events, int wake_fd, int *error)
{
    bs_binlog *binlog = calloc(1, sizeof *binlog);
    *error = -ENOMEM;
    if (!binlog)
        return NULL;
    *binlog = (bs_binlog){
        .jobs = jobs,
        .counters = counters,
        .shared = shared,
        .events = events,
        .file_size = config->file_size < BS_ROOM_LEAST ? BS_ROOM_LEAST : config->file_size,
        .sync_interval_ns = config->sync_interval_ns,
        .dir_fd = -1,
        .lock_fd = -1,
        .fd = -1,
        .gen = 1,
        .spares_ahead = 1,
        .refused_until = INT64_MIN,
    };
    *error = take_folder(binlog, config, wake_fd);
    if (*error) {
        bs_binlog_free(binlog);
        return NULL;
    }
    return binlog;
}

static int open_for_writing(const bs_binlog *binlog, uint32_t number)
{
    char name[32];
    (void)snprintf(name, sizeof name, "binlog.%u", number);
    return bs_io.open(binlog->dir_fd, name, O_RDWR);
}

/* The other unused files stay in the list, so that numbers have no gap, but their zeros need not. */
static void adopt_unused(bs_binlog *binlog)
{
    uint32_t end = binlog->file_end;
    while (end > binlog->first_file && binlog->files[end - 1].unused >= binlog->file_size)
        end--;
    for (uint32_t i = binlog->first_file; i < binlog->file_end; i++) {
        bs_binlog_file *file = &binlog->files[i];
        int fd = file->unused > 0 ? open_for_writing(binlog, file->number) : -1;
        if (i >= end && fd < 0)
            end = i + 1; /* it stays, and so do those before it */
        if (fd < 0)
            continue;
        if (i >= end) {
            bs_room_add(binlog, (bs_spare){file->number, fd, file->unused});
            binlog->total -= file->bytes;
        } else {
            (void)bs_io.truncate(fd, BS_ENTRY_HEADER); /* if not, it is merely larger than it need be */
            (void)close(fd);
        }
    }
    binlog->file_end = end;
}

int bs_binlog_start(bs_binlog *binlog, bs_now now)
{
    if (binlog->largest > bs_room_per_file(binlog)) {
        binlog->file_size += binlog->largest - bs_room_per_file(binlog);
        bs_events_log(binlog->events, BS_WARNING, "files get %lld bytes: there is a job that needs so much (-s)",
                      (long long)binlog->file_size);
    }
    binlog->counters->binlog_max_size = (uint64_t)binlog->file_size;
    binlog->spares = bs_spares_new(binlog->dir_fd, binlog->sync_interval_ns >= 0, binlog->wake_fd);
    if (!binlog->spares)
        return -ENOMEM;
    adopt_unused(binlog);
    int error = bs_room_first(binlog);
    if (error)
        return error;
    open_spare(binlog, now);
    bs_room_ask_ahead(binlog, now);
    return 0;
}

int bs_binlog_stop(bs_binlog *binlog, bs_now now)
{
    if (!binlog || binlog->fd < 0)
        return 0;
    if (bs_binlog_poll(binlog, true, now) < 0 || bs_binlog_write(binlog, now) < 0)
        return BS_ERR_BINLOG;
    size_t count;
    bs_sync_file *files = begin_sync(binlog, &count);
    files[count - 1].complete_at = binlog->end;
    binlog->fd = -1;
    int error = bs_sync_files(files, count, binlog->sync_interval_ns >= 0);
    /* On a full disk they are the room in which the next start goes on. */
    for (uint32_t i = 0; i < binlog->spare_count && !binlog->refusing; i++)
        bs_spares_discard(binlog->spares, binlog->spare[i].number);
    return end_sync(binlog, error, now) < 0 ? BS_ERR_BINLOG : 0;
}

static void close_if_open(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

void bs_binlog_free(bs_binlog *binlog)
{
    if (!binlog)
        return;
    bs_syncer_free(binlog->syncer);
    for (uint32_t i = 0; i < binlog->spare_count; i++)
        (void)close(binlog->spare[i].fd);
    bs_spares_free(binlog->spares);
    for (size_t i = 0; i < binlog->complete_count; i++)
        (void)close(binlog->complete[i].fd);
    close_if_open(binlog->fd);
    bs_compaction_free(binlog->compaction);
    close_if_open(binlog->lock_fd);
    close_if_open(binlog->dir_fd);
    bs_bytes_free(&binlog->buffer);
    free(binlog->files);
    free(binlog->complete);
    free(binlog->spare);
    free(binlog);
}
