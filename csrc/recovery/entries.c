/* Applies the entries of a binlog to jobs. */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "recovery/recovery_state.h"

static uint32_t seconds(int64_t nanoseconds)
{
    return (uint32_t)((nanoseconds + BS_SECOND - 1) / BS_SECOND);
}

static void set_job(bs_recovery *r, bs_job *job, const bs_entry *entry)
{
    job->pri = entry->pri;
    job->delay = seconds(entry->delay);
    job->ttr = seconds(entry->ttr);
    job->created_at = entry->created_at;
    job->reserves = entry->reserves;
    job->timeouts = entry->timeouts;
    job->releases = entry->releases;
    job->buries = entry->buries;
    job->kicks = entry->kicks;
    job->state = entry->state & 7U;
    job->session = entry->crc;
    job->reserve_written = entry->kept;
    job->at = bs_entry_at(entry, &r->log_time);
}

static void leave_file(bs_recovery *r, const bs_job *job)
{
    bs_binlog_file *file = bs_binlog_find_file(r->binlog, job->file);
    if (file && file->jobs > 0)
        file->jobs--;
}

static void delete_job(bs_recovery *r, bs_job *job)
{
    leave_file(r, job);
    r->binlog->alive -= (int64_t)bs_entry_put_size(job) + (job->has_short ? BS_ENTRY_SHORT : 0);
    r->binlog->owed -= bs_entry_owed(job);
    r->jobs[job->place] = NULL;
    bs_job_table_remove(&r->queue->jobs, job);
    bs_queue_drop_job(r->queue, job);
}

/* Returns the attributes that precede this full entry, or NULL. */
static const bs_job_attributes *attributes_before(const bs_recovery *r, const bs_entry *entry)
{
    const bool of_entry = r->attributes_end == r->scan.at && r->attributes.job == entry->id;
    return of_entry ? &r->attributes.values : NULL;
}

static int new_job(bs_recovery *r, const bs_entry *entry, bs_job **created)
{
    const size_t known = r->queue->tubes.count;
    bs_tube *tube =
        bs_tubes_get(&r->queue->tubes, entry->name, entry->name_length, &r->queue->shared->last_tube);
    if (tube && r->queue->tubes.count > known)
        tube->number = UINT64_MAX; /* bs_queue_restore */
    const bs_job_attributes *attributes = attributes_before(r, entry);
    bs_job *job = tube ? bs_job_new(entry->id, entry->body_size, r->queue->bodies != NULL, attributes != NULL) : NULL;
    if (!job || bs_job_table_add(&r->queue->jobs, job) != 0) {
        bs_job_free(job);
        return -ENOMEM;
    }
    r->queue->counters->tubes = r->queue->tubes.count;
    job->tube = tube;
    if (attributes)
        *bs_job_attributes_of(job) = *attributes;
    tube->jobs++;
    tube->bytes += entry->body_size;
    r->queue->counters->job_bytes += bs_job_record_bytes(job);
    r->jobs = bs_must_grow_u32(r->jobs, r->job_count, &r->job_capacity, sizeof(bs_job *));
    job->place = r->job_count;
    r->jobs[r->job_count++] = job;
    r->binlog->owed += bs_entry_owed(job);
    r->binlog->alive += (int64_t)bs_entry_put_size(job);
    *created = job;
    return 0;
}

/* 0, or a negative errno. */
static int apply_full(bs_recovery *r, const bs_entry *entry, bs_job *job)
{
    const bs_job_attributes *attributes = attributes_before(r, entry);
    /* The attributes before the last full entry count. A sound copy without them has lost them: they are damaged, or
     * were not written by a power cut. The memory of a job cannot change its size. */
    if (job && (job->has_attributes ? !attributes && !entry->sound : attributes != NULL)) {
        delete_job(r, job);
        job = NULL;
    }
    if (job && attributes) {
        r->binlog->owed -= bs_entry_owed(job);
        *bs_job_attributes_of(job) = *attributes;
        r->binlog->owed += bs_entry_owed(job);
    }
    if (job) {
        leave_file(r, job);
        if (job->has_short)
            r->binlog->alive -= BS_ENTRY_SHORT;
        job->has_short = 0;
    } else {
        int error = new_job(r, entry, &job);
        if (error)
            return error;
    }
    set_job(r, job, entry);
    job->file = r->number & BS_FILE_NUMBER_MAX;
    r->file->jobs++;
    /* The last body counts, as for the tools. */
    if (job->separate)
        return bs_body_recovered(r->queue->bodies, job, &r->scan, entry);
    return bs_scan_copy_body(&r->scan, r->scan.at, entry, entry->body_size, job->inline_body);
}

/* A later file records the length of an earlier one. */
static void take_length(bs_recovery *r, const bs_entry *entry)
{
    if (entry->length_of + 1 == r->number && entry->length == BS_ENTRY_HEADER)
        r->gap_recorded = true;
    bs_binlog_file *file = entry->length_of < r->number ? bs_binlog_find_file(r->binlog, entry->length_of) : NULL;
    if (!file)
        return; /* it is not needed any more */
    file->length = (int64_t)entry->length;
    file->length_in = r->number;
    file->length_boot = entry->length_boot;
}

void bs_recovery_remove_key(bs_recovery *r, bs_ended_key *ended)
{
    bs_binlog_forget_key(r->binlog, ended);
    bs_queue_remove_ended_key(r->queue, ended);
}

static void apply_ended_key(bs_recovery *r, const bs_entry_attributes *entry)
{
    bs_queue *queue = r->queue;
    bs_ended_key *before = bs_ended_find(&queue->ended_keys, entry->values.key);
    if (before)
        bs_recovery_remove_key(r, before);
    if (bs_ended_is_over(entry->until, r->now.wall))
        return;
    bs_ended_key *ended = bs_queue_add_ended_key(queue, entry->values.key, entry->job, entry->until);
    ended->file = r->number;
    r->file->used = true;
    r->file->jobs++;
    r->binlog->alive += BS_ENTRY_SHORT;
}

int bs_recovery_apply(bs_recovery *r, const bs_entry *entry, bs_job *job)
{
    if (entry->length_of) {
        take_length(r, entry);
        return 0;
    }
    if (entry->attributes.until) {
        apply_ended_key(r, &entry->attributes);
        return 0;
    }
    if (entry->attributes.job) {
        r->attributes = entry->attributes;
        r->attributes_end = r->scan.offset;
        return 0;
    }
    if (!bs_entry_has_no_job(entry))
        r->file->used = true;
    /* An id in nothing but an unchecked short entry is no reason to skip numbers. */
    if (entry->id > r->highest_id && (entry->name_length > 0 || entry->sound))
        r->highest_id = entry->id;
    if (entry->state == BS_INVALID) {
        if (job)
            delete_job(r, job);
        return 0;
    }
    if (entry->name_length > 0)
        return apply_full(r, entry, job);
    if (!job)
        return 0; /* it was deleted, or moved to a later file, and the file with its full entry is gone */
    if (!job->has_short)
        r->binlog->alive += BS_ENTRY_SHORT;
    job->has_short = 1;
    set_job(r, job, entry);
    return 0;
}

static bs_ended_key *ended_key_before(const bs_recovery *r, uint32_t first)
{
    const bs_heap *keys = &r->queue->ended_keys.by_time;
    for (uint32_t i = 0; i < keys->count; i++) {
        bs_ended_key *ended = keys->slots[i].item;
        if (ended->file < first)
            return ended;
    }
    return NULL;
}

/* Removes what the files below this number have. */
void bs_recovery_remove_before(bs_recovery *r, uint32_t first)
{
    for (uint32_t i = 0; i < r->job_count; i++)
        if (r->jobs[i] && r->jobs[i]->file < first)
            delete_job(r, r->jobs[i]);
    for (bs_ended_key *ended; (ended = ended_key_before(r, first)) != NULL;)
        bs_recovery_remove_key(r, ended);
}
