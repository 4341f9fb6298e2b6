#include "base/alloc.h"
#include "base/file_io.h"
#include "binlog/binlog_private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bs_binlog_file *bs_binlog_add_file(bs_binlog *binlog, uint32_t number, int64_t bytes)
{
    binlog->files = bs_must_grow(binlog->files, binlog->file_count, &binlog->file_capacity, sizeof *binlog->files);
    bs_binlog_file *file = &binlog->files[binlog->file_count++];
    *file = (bs_binlog_file){.number = number, .bytes = bytes, .empty_gen = binlog->gen};
    binlog->total += bytes;
    binlog->counters->binlog_oldest = binlog->files[0].number;
    return file;
}

bs_binlog_file *bs_binlog_find_file(const bs_binlog *binlog, uint32_t number)
{
    uint32_t low = 0;
    uint32_t high = binlog->file_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (binlog->files[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < binlog->file_count && binlog->files[low].number == number ? &binlog->files[low] : NULL;
}

void bs_binlog_fail(bs_binlog *binlog, const char *call, int error)
{
    if (binlog->failed)
        return;
    binlog->failed = error;
    binlog->failed_call = call;
}

void bs_binlog_collect(bs_binlog *binlog)
{
    uint64_t durable = binlog->sync_interval_ns < 0 ? binlog->gen : binlog->synced;
    uint32_t removed = 0;
    for (; binlog->file_count - removed > 1; removed++) {
        const bs_binlog_file *oldest = &binlog->files[removed];
        if (oldest->jobs > 0 || oldest->empty_gen > durable || binlog->failed)
            break;
        if (oldest->damaged)
            bs_events_log(binlog->events, BS_WARNING,
                          "binlog.%u had unreadable entries and is not removed but kept as binlog.%u.bad",
                          oldest->number, oldest->number);
        const bs_file_task kind = oldest->damaged ? BS_FILE_RETIRE_DAMAGED : BS_FILE_RETIRE;
        bs_bodies_close_file(&binlog->bodies, oldest->number);
        bs_preallocator_request(binlog->preallocator, kind, oldest->number, 0);
        binlog->total -= oldest->bytes;
        binlog->lengths_missing -= !oldest->has_length;
    }
    if (removed == 0)
        return;
    binlog->file_count -= removed;
    memmove(binlog->files, binlog->files + removed, binlog->file_count * sizeof *binlog->files);
    binlog->retry_file_at = INT64_MIN; /* the removal may have freed disk space */
    binlog->counters->binlog_oldest = binlog->files[0].number;
}

/* A job or an ended key does not need this file any more; 0: it is in none (bs_binlog_leave_damaged). */
static void leave_file_number(bs_binlog *binlog, uint32_t number)
{
    if (number == 0)
        return;
    bs_binlog_file *file = bs_binlog_find_file(binlog, number);
    assert(file && file->jobs > 0);
    if (--file->jobs == 0)
        file->empty_gen = binlog->gen;
}

static void leave_file(bs_binlog *binlog, const bs_job *job)
{
    leave_file_number(binlog, job->file);
}

static char *append_space(bs_binlog *binlog, size_t size)
{
    assert(binlog->end + (int64_t)size <= binlog->size); /* B2 */
    char *space = bs_bytes_reserve(&binlog->buffer, size);
    if (!space)
        abort();
    return space;
}

static void extend_buffer(bs_binlog *binlog, size_t size)
{
    bs_bytes_extend(&binlog->buffer, size);
    binlog->end += (int64_t)size;
    binlog->total += (int64_t)size;
    bs_binlog_current_file(binlog)->bytes = binlog->end;
    binlog->dirty = true;
    binlog->counters->records_written++;
}

static void append(bs_binlog *binlog, const bs_job *job, bool full, uint32_t extra, bs_now now)
{
    char *space = append_space(binlog, full ? bs_entry_full_size(job) : BS_ENTRY_SHORT);
    bs_binlog_file *file = bs_binlog_current_file(binlog);
    const bool has_deadline = job->state == BS_DELAYED || job->state == BS_RESERVED;
    const int64_t at = has_deadline ? bs_entry_deadline(job->at - now.mono, now.wall) : job->at;
    extend_buffer(binlog, bs_entry_encode(space, job, (uint8_t)job->state, at, full, extra, file->number));
    file->used = true;
}

static void append_short(bs_binlog *binlog, bs_job *job, uint32_t extra, bs_now now)
{
    append(binlog, job, false, extra, now);
    binlog->appended++;
    if (!job->has_short)
        binlog->alive += BS_ENTRY_SHORT;
    job->has_short = 1;
}

void bs_binlog_leave_damaged(bs_binlog *binlog, bs_job *job)
{
    bs_binlog_find_file(binlog, job->file)->damaged = true;
    leave_file(binlog, job);
    job->file = 0;
}

/* Appends the job's full entry, with its attribute entry before it, and assigns the job to the current file. */
static void append_full(bs_binlog *binlog, bs_job *job, bs_now now)
{
    bs_binlog_file *file = bs_binlog_current_file(binlog);
    if (job->has_attributes) {
        char *space = append_space(binlog, BS_ENTRY_SHORT);
        extend_buffer(binlog, bs_entry_encode_attributes_of(space, bs_binlog_unused_id(binlog), job, now.wall,
                                                            file->number));
    }
    const int64_t at = binlog->end;
    const bool is_kept = job->state == BS_RESERVED && job->session == binlog->kept_by;
    append(binlog, job, true, is_kept ? BS_ENTRY_KEPT : 0, now);
    job->file = file->number & BS_FILE_NUMBER_MAX;
    file->jobs++;
    if (!job->separate)
        return;
    const char *head = bs_bytes_data(&binlog->buffer) + (at - binlog->written);
    bs_body_place *place = bs_job_body_place(job);
    place->offset = at < BS_NO_OFFSET ? (uint32_t)at : BS_NO_OFFSET;
    place->sum = bs_entry_checksum(head, bs_entry_full_size(job) - job->body_size);
}

void bs_binlog_write_buffer(bs_binlog *binlog)
{
    size_t length = bs_bytes_length(&binlog->buffer);
    if (length == 0 || binlog->failed)
        return;
    int error = bs_io_write_all(BS_IO_WRITE, binlog->fd, bs_bytes_data(&binlog->buffer), length, binlog->written);
    if (error) {
        bs_binlog_fail(binlog, "write", error);
        return;
    }
    binlog->written += (int64_t)length;
    bs_bytes_clear(&binlog->buffer);
}

/* The highest id is the first entry of a file, so that ids rise even if no job is left. A reader deletes the job that
 * an Invalid entry names, so the entry is left out if a job has that id. */
static void append_last_id(bs_binlog *binlog, bs_now now)
{
    uint64_t id = __atomic_load_n(&binlog->shared->last_id, __ATOMIC_RELAXED);
    if (id == 0 || bs_job_table_find(binlog->jobs, id))
        return;
    char *space = append_space(binlog, BS_ENTRY_SHORT);
    extend_buffer(binlog, bs_entry_encode_last_id(space, id, now.wall, bs_binlog_current_file(binlog)->number));
}

void bs_binlog_open_next(bs_binlog *binlog, bs_now now)
{
    bs_preallocated next = bs_space_next_file(binlog);
    (void)bs_binlog_add_file(binlog, next.number, BS_ENTRY_HEADER);
    binlog->counters->binlog_current = next.number;
    binlog->fd = next.fd;
    binlog->size = next.size;
    binlog->written = BS_ENTRY_HEADER;
    binlog->end = BS_ENTRY_HEADER;
    append_last_id(binlog, now);
    bs_lengths_append_gap(binlog, now);
}

static void roll(bs_binlog *binlog, bs_now now)
{
    bs_binlog_write_buffer(binlog);
    binlog->complete =
        bs_must_grow(binlog->complete, binlog->complete_count, &binlog->complete_capacity, sizeof *binlog->complete);
    binlog->complete[binlog->complete_count++] = (bs_sync_file){binlog->fd, binlog->end};
    binlog->dirty = true;
    bs_binlog_file *file = bs_binlog_current_file(binlog);
    file->complete_gen = binlog->gen;
    file->has_length = !file->used;
    binlog->lengths_missing += file->used;
    if (file->jobs == 0)
        file->empty_gen = binlog->gen;
    bs_binlog_open_next(binlog, now);
}

/* Makes space for an entry after which `owed` short entries still fit. */
static bool make_space(bs_binlog *binlog, int64_t size, uint64_t owed, bs_now now)
{
    if (binlog->failed)
        return false;
    while (!bs_space_in_current(binlog, size, owed)) {
        if (bs_space_in_next(binlog, size, owed))
            roll(binlog, now);
        else if (!bs_space_wait(binlog, size, now))
            return false;
    }
    return true;
}

bool bs_binlog_next_file(bs_binlog *binlog, bs_now now)
{
    if (binlog->failed)
        return false;
    while (!bs_space_in_next(binlog, 0, binlog->owed))
        if (!bs_space_wait(binlog, 0, now))
            return false;
    roll(binlog, now);
    return true;
}

int bs_binlog_put(bs_binlog *binlog, bs_job *job, bs_now now)
{
    if (!binlog)
        return 0;
    int64_t size = (int64_t)bs_entry_put_size(job);
    if (!make_space(binlog, size, binlog->owed + bs_entry_owed(job), now)) {
        bs_space_refused(binlog, size);
        return -ENOSPC;
    }
    if (!bs_bytes_reserve(&binlog->buffer, (size_t)size))
        return -ENOMEM;
    append_full(binlog, job, now);
    binlog->appended++;
    job->gen = binlog->gen & BS_JOB_GEN_MASK;
    binlog->owed += bs_entry_owed(job);
    binlog->alive += size;
    return 0;
}

bool bs_binlog_reserve_space(bs_binlog *binlog, bs_now now)
{
    return !binlog || make_space(binlog, BS_ENTRY_SHORT, binlog->owed, now);
}

void bs_binlog_update(bs_binlog *binlog, bs_job *job, uint32_t reserve_age, bs_now now)
{
    if (!binlog)
        return;
    append_short(binlog, job, reserve_age, now);
    job->gen = binlog->gen & BS_JOB_GEN_MASK;
}

void bs_binlog_only_deferred(bs_binlog *binlog, bool was_dirty, bs_now now)
{
    binlog->dirty = was_dirty;
    if (!binlog->deferred)
        binlog->deferred_at = now.mono;
    binlog->deferred = true;
}

/* Like make_space, but never waits. On a full disk the remaining space is kept for buries and releases. */
static bool make_space_for_deferred(bs_binlog *binlog, bs_now now)
{
    if (binlog->failed || binlog->file_failed)
        return false;
    if (bs_space_in_current(binlog, BS_ENTRY_SHORT, binlog->owed))
        return true;
    while (bs_space_take(binlog, false, now))
        continue;
    if (bs_space_in_next(binlog, BS_ENTRY_SHORT, binlog->owed)) {
        roll(binlog, now);
        return true;
    }
    bs_space_ran_out(binlog);
    return false;
}

void bs_binlog_append_deferred(bs_binlog *binlog, bs_job *job, uint32_t reserve_age, bs_now now)
{
    if (binlog && binlog->history)
        bs_binlog_append_counters(binlog, job, reserve_age, now);
}

void bs_binlog_append_counters(bs_binlog *binlog, bs_job *job, uint32_t reserve_age, bs_now now)
{
    if (!binlog)
        return;
    const bool was_dirty = binlog->dirty;
    if (make_space_for_deferred(binlog, now) && bs_bytes_reserve(&binlog->buffer, BS_ENTRY_SHORT)) {
        append_short(binlog, job, reserve_age, now);
        job->reserve_written = 1;
    } else {
        binlog->counters->deferred_dropped++;
    }
    if (binlog->dirty)
        bs_binlog_only_deferred(binlog, was_dirty, now);
}

bool bs_binlog_keep_reserved(bs_binlog *binlog, bs_job *job, bs_now now)
{
    if (!bs_binlog_reserve_space(binlog, now))
        return false;
    bs_binlog_update(binlog, job, BS_ENTRY_KEPT, now);
    job->reserve_written = 1;
    return true;
}

int bs_binlog_delete(bs_binlog *binlog, bs_job *job, uint32_t ended, bs_now now)
{
    if (!binlog)
        return 0;
    /* The entry uses the space that was owed to it, so B1 holds. */
    if (!make_space(binlog, BS_ENTRY_SHORT, 0, now))
        return -ENOSPC;
    char *space = append_space(binlog, BS_ENTRY_SHORT);
    bs_binlog_file *file = bs_binlog_current_file(binlog);
    const uint32_t extra = bs_entry_extra_of_end(ended, bs_binlog_reserve_age(binlog, job, now));
    extend_buffer(binlog, bs_entry_encode(space, job, BS_INVALID, now.wall, false, extra, file->number));
    file->used = true;
    binlog->appended++;
    binlog->owed -= bs_entry_owed(job);
    binlog->alive -= (int64_t)bs_entry_put_size(job) + (job->has_short ? BS_ENTRY_SHORT : 0);
    leave_file(binlog, job);
    return 0;
}

static void append_key(bs_binlog *binlog, bs_ended_key *ended, bs_now now)
{
    bs_entry_attributes content = {.job = ended->job, .until = ended->until};
    memcpy(content.values.key, ended->key, BS_KEY_BYTES);
    char *space = append_space(binlog, BS_ENTRY_SHORT);
    bs_binlog_file *file = bs_binlog_current_file(binlog);
    extend_buffer(binlog, bs_entry_encode_attributes(space, bs_binlog_unused_id(binlog), &content, now.wall,
                                                     file->number));
    file->used = true;
    file->jobs++;
    ended->file = file->number;
    binlog->alive += BS_ENTRY_SHORT;
}

int bs_binlog_end_key(bs_binlog *binlog, bs_ended_key *ended, bs_now now)
{
    if (!binlog)
        return 0;
    /* The entry uses the space that was owed to it, as that of the delete. */
    if (!make_space(binlog, BS_ENTRY_SHORT, 0, now))
        return -ENOSPC;
    append_key(binlog, ended, now);
    binlog->appended++;
    return 0;
}

void bs_binlog_forget_key(bs_binlog *binlog, bs_ended_key *ended)
{
    if (!binlog || ended->file == 0)
        return;
    leave_file_number(binlog, ended->file);
    binlog->alive -= BS_ENTRY_SHORT;
    ended->file = 0;
}

bool bs_binlog_move_key(bs_binlog *binlog, bs_ended_key *ended, bs_now now)
{
    if (!make_space(binlog, BS_ENTRY_SHORT, binlog->owed, now))
        return false;
    bs_binlog_forget_key(binlog, ended);
    append_key(binlog, ended, now);
    binlog->counters->records_migrated++;
    return true;
}

bool bs_binlog_can_delete_all(const bs_binlog *binlog)
{
    return !binlog || bs_space_in_current(binlog, 0, binlog->owed) || bs_space_in_next(binlog, 0, binlog->owed);
}

/* Moves a job whose body is in memory. */
static bool move_loaded(bs_binlog *binlog, bs_job *job, bs_now now)
{
    if (!make_space(binlog, (int64_t)bs_entry_put_size(job), binlog->owed, now))
        return false;
    leave_file(binlog, job);
    append_full(binlog, job, now);
    if (job->state == BS_RESERVED)
        job->reserve_written = 1; /* by this copy */
    binlog->counters->records_migrated++;
    if (job->has_short)
        binlog->alive -= BS_ENTRY_SHORT;
    job->has_short = 0;
    return true;
}

bool bs_binlog_move(bs_binlog *binlog, bs_job *job, bs_now now)
{
    const bool dropped = !bs_job_has_body(job);
    const int error = bs_body_load(binlog, job);
    if (error)
        return error == BS_BODY_DAMAGED;
    const bool moved = move_loaded(binlog, job, now);
    if (dropped)
        bs_body_drop(&binlog->bodies, job);
    return moved;
}
