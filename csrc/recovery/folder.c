/* From a binlog folder to a queue. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_io.h"
#include "recovery/recovery_state.h"

enum { WINDOW = 256 * 1024 };

/* --- into the queue --------------------------------------------------------------------------------- */

/* Returns the time to the deadline of a job. A clock that was set back must not lengthen it. */
static int64_t time_left(const bs_recovery *r, const bs_job *job)
{
    const int64_t left = job->at - r->now.wall;
    const int64_t most = (int64_t)(job->state == BS_DELAYED ? job->delay : job->ttr) * BS_SECOND;
    return left < most ? left : most;
}

/* Removes the places of deleted jobs. */
static void compact_jobs(bs_recovery *r)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->job_count; i++) {
        if (!r->jobs[i])
            continue;
        if (kept < i)
            (r->jobs[kept] = r->jobs[i])->place = kept;
        kept++;
    }
    r->job_count = kept;
}

/* Buried jobs in the order of burying, all others by id, which is the order in which most leave. */
static void restore(bs_recovery *r)
{
    compact_jobs(r);
    bool sorted = true;
    for (uint32_t i = 1; i < r->job_count && sorted; i++)
        sorted = r->jobs[i - 1]->id < r->jobs[i]->id;
    if (!sorted)
        qsort(r->jobs, r->job_count, sizeof(bs_job *), bs_job_compare_ids);
    uint32_t buried = 0;
    for (uint32_t i = 0; i < r->job_count; i++) {
        bs_job *job = r->jobs[i];
        if (job->state == BS_BURIED) {
            r->jobs[buried++] = job;
            continue;
        }
        if (job->state == BS_RESERVED && !job->reserve_written)
            job->state = BS_INVALID;
        if (job->state == BS_DELAYED || job->state == BS_RESERVED)
            job->at = r->now.mono + time_left(r, job);
        bs_queue_restore(r->queue, job, r->now);
    }
    if (buried > 1)
        qsort(r->jobs, buried, sizeof(bs_job *), bs_job_compare_buried);
    for (uint32_t i = 0; i < buried; i++)
        bs_queue_restore(r->queue, r->jobs[i], r->now);
}

static void raise_to(uint64_t *number, uint64_t least)
{
    uint64_t last = __atomic_load_n(number, __ATOMIC_RELAXED);
    while (last < least &&
           !__atomic_compare_exchange_n(number, &last, least, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

/* --- one call --------------------------------------------------------------------------------------- */

static bool find_job(void *context, uint64_t id, bool last, bs_entry *entry)
{
    const bs_recovery *r = context;
    const bs_job *job = bs_job_table_find(&r->queue->jobs, id);
    (void)last;
    if (job)
        *entry = (bs_entry){.name = job->tube->name,
                            .name_length = job->tube->name_length,
                            .body_size = job->body_size,
                            .crc = job->session};
    return job != NULL;
}

bs_recovery *bs_recovery_new(bs_binlog *binlog, bs_queue *queue)
{
    bs_recovery *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    *r = (bs_recovery){.binlog = binlog, .queue = queue, .next = 1};
    if (bs_scan_init(&r->scan, WINDOW) != 0) {
        free(r);
        return NULL;
    }
    r->scan.find_job = find_job;
    r->scan.context = r;
    return r;
}

void bs_recovery_free(bs_recovery *r)
{
    if (!r)
        return;
    bs_close(r->scan.fd);
    bs_scan_free(&r->scan);
    free(r->jobs);
    free(r);
}

/* Forgets files that were removed: those below the first one of the folder. While it follows, a file that still has jobs
 * is not forgotten, because they may move in what is not read yet. */
static void forget_before(bs_recovery *r, uint32_t first)
{
    bs_binlog *binlog = r->binlog;
    uint32_t gone = 0;
    while (gone < binlog->file_count && binlog->files[gone].number < first &&
           !(r->follows && binlog->files[gone].jobs > 0))
        gone++;
    if (gone == 0)
        return;
    if (!r->follows)
        bs_recovery_remove_before(r, first);
    for (uint32_t i = 0; i < gone; i++) {
        binlog->total -= binlog->files[i].bytes;
        bs_bodies_close_file(&binlog->bodies, binlog->files[i].number);
    }
    binlog->file_count -= gone;
    memmove(binlog->files, binlog->files + gone, binlog->file_count * sizeof *binlog->files);
    r->file = NULL;
}

/* Reads to their ends all files that are not read yet and are below `before`. Files of this list that follow each other
 * must have consecutive numbers, unless the later one records the gap. */
static int read_files(bs_recovery *r, const bs_file_list *list, uint32_t before)
{
    int error = 0;
    for (size_t i = 0; i < list->count && list->numbers[i] < before && !error; i++) {
        const uint32_t number = list->numbers[i];
        if (number < r->next)
            continue;
        r->gap_recorded = false;
        error = bs_recovery_read_file(r, number, UINT64_MAX);
        if (i > 0 && number != list->numbers[i - 1] + 1 && !r->gap_recorded)
            bs_events_log(r->binlog->events, BS_WARNING, "binlog.%u follows binlog.%u: files between them are missing",
                          number, list->numbers[i - 1]);
    }
    return error;
}

/* Reads all files below this number, and forgets those that were removed. */
static int follow_files(bs_recovery *r, uint32_t before)
{
    bs_file_list list;
    int error = bs_recovery_list(r->binlog, &list);
    if (!error && r->scan.fd >= 0)
        error = bs_recovery_read_file(r, r->number, UINT64_MAX); /* which may have been removed */
    if (!error)
        error = read_files(r, &list, before);
    if (!error && list.count > 0)
        forget_before(r, list.numbers[0]);
    free(list.numbers);
    return error;
}

int bs_recovery_follow(bs_recovery *r, uint32_t file, uint64_t end, bs_now now)
{
    enum { MANY = 16 };
    r->now = now;
    r->follows = true;
    const bool is_behind = file < r->next || (r->scan.fd >= 0 && file == r->number && end < r->scan.length);
    int error = is_behind ? -ESTALE : 0;
    if (!error && (r->scan.fd < 0 || r->number < file))
        error = follow_files(r, file);
    if (!error)
        error = bs_recovery_read_file(r, file, end);
    for (bs_ended_key *ended; (ended = bs_ended_first(&r->queue->ended_keys)) != NULL;) {
        if (!bs_ended_is_over(ended->until, now.wall))
            break;
        bs_recovery_remove_key(r, ended);
    }
    if (r->job_count > 2 * r->queue->jobs.count + MANY)
        compact_jobs(r);
    return error;
}

int bs_recovery_end(bs_recovery *r, bs_now now)
{
    bs_binlog *binlog = r->binlog;
    bs_queue *queue = r->queue;
    bs_file_list list;
    const bool is_copy = r->follows;
    r->now = now;
    r->follows = false;
    int error = bs_recovery_list(binlog, &list);
    if (!error)
        error = bs_unsynced_settle(binlog, list.numbers, list.count, is_copy);
    if (!error)
        error = read_files(r, &list, UINT32_MAX);
    if (!error) {
        forget_before(r, list.count > 0 ? list.numbers[0] : UINT32_MAX);
        if (list.highest_renamed > binlog->last_number)
            binlog->last_number = list.highest_renamed; /* or a later file of that number could not be renamed */
        bs_lengths_check(binlog);
        restore(r);
        raise_to(&queue->shared->last_id, r->highest_id);
        raise_to(&queue->shared->last_tube, r->highest_id); /* bs_queue_restore */
        if (list.count > 0)
            bs_events_log(binlog->events, BS_INFO, "read %zu binlog file%s: %zu job%s", list.count,
                          list.count == 1 ? "" : "s", queue->jobs.count, queue->jobs.count == 1 ? "" : "s");
    }
    free(list.numbers);
    return error;
}
