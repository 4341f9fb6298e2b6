/* bs_recover: reads files of C beanstalkd (versions 5 and 7) and of this server.
 *
 * Every entry is validated: an invalid one is reported with its file and offset, and later entries are used if they are
 * valid. Everything is on disk before it is read (unsynced.c).
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "binlog_files/entry.h"
#include "binlog_files/scan.h"
#include "queue/queue.h"

enum { WINDOW = 256 * 1024, BLOCK = 512 };

/* One start. While it lasts, a job's `place` is its index in `jobs`, `session` the checksum field of its last entry,
 * and `at` the wall time of that entry's deadline_at. */
typedef struct {
    bs_binlog *binlog;
    bs_queue *queue;
    bs_now now;
    bs_job **jobs; /* in the order of their first entry; NULL where one was deleted */
    uint32_t job_count;
    uint32_t job_capacity;
    uint64_t highest_id;
    int64_t log_time; /* the latest time so far: that of an entry without one */
    uint32_t number;  /* of the file being read */
    bs_binlog_file *file; /* the file being read, if it has entries */
    bs_scan scan;     /* of it */
    bs_entry_attributes attributes; /* of the last attribute entry of this file */
    uint64_t attributes_end; /* behind it; 0: none */
    bool gap_recorded; /* this file records that the one before its number never existed */
} recovery;

/* --- entries ---------------------------------------------------------------------------------------- */

static uint32_t seconds(int64_t nanoseconds)
{
    return (uint32_t)((nanoseconds + BS_SECOND - 1) / BS_SECOND);
}

static void set_job(recovery *r, bs_job *job, const bs_entry *entry)
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
    job->at = bs_entry_at(entry, &r->log_time);
}

static void leave_file(recovery *r, const bs_job *job)
{
    bs_binlog_file *file = bs_binlog_find_file(r->binlog, job->file);
    if (file && file->jobs > 0)
        file->jobs--;
}

static void delete_job(recovery *r, bs_job *job)
{
    leave_file(r, job);
    r->binlog->alive -= (int64_t)bs_entry_put_size(job) + (job->has_short ? BS_ENTRY_SHORT : 0);
    r->binlog->owed -= bs_entry_owed(job);
    r->jobs[job->place] = NULL;
    bs_job_table_remove(&r->queue->jobs, job);
    bs_queue_drop_job(r->queue, job);
}

/* Returns the attributes that precede this full entry, or NULL. */
static const bs_job_attributes *attributes_before(const recovery *r, const bs_entry *entry)
{
    const bool of_entry = r->attributes_end == r->scan.at && r->attributes.job == entry->id;
    return of_entry ? &r->attributes.values : NULL;
}

static int new_job(recovery *r, const bs_entry *entry, bs_job **created)
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
static int apply_full(recovery *r, const bs_entry *entry, bs_job *job)
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
static void take_length(recovery *r, const bs_entry *entry)
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

static void apply_ended_key(recovery *r, const bs_entry_attributes *entry)
{
    bs_queue *queue = r->queue;
    bs_ended_key *before = bs_ended_find(&queue->ended_keys, entry->values.key);
    if (before) {
        bs_binlog_forget_key(r->binlog, before);
        bs_queue_remove_ended_key(queue, before);
    }
    if (bs_ended_is_over(entry->until, r->now.wall))
        return;
    bs_ended_key *ended = bs_queue_add_ended_key(queue, entry->values.key, entry->job, entry->until);
    ended->file = r->number;
    r->file->used = true;
    r->file->jobs++;
    r->binlog->alive += BS_ENTRY_SHORT;
}

static int apply(recovery *r, const bs_entry *entry, bs_job *job)
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

/* --- files ------------------------------------------------------------------------------------------ */

static bool find_job(void *context, uint64_t id, bool last, bs_entry *entry)
{
    const recovery *r = context;
    const bs_job *job = bs_job_table_find(&r->queue->jobs, id);
    (void)last;
    if (job)
        *entry = (bs_entry){.name = job->tube->name,
                            .name_length = job->tube->name_length,
                            .body_size = job->body_size,
                            .crc = job->session};
    return job != NULL;
}

/* Logs a fault. An entry at the end that a crash has cut short is logged, but is no damage. */
static void report(recovery *r)
{
    const bs_scan *scan = &r->scan;
    bs_events *events = r->binlog->events;
    if (scan->torn) {
        bs_events_log(events, BS_WARNING,
                      "binlog.%u:%" PRIu64 ": the last entry was not written to its end; it is left out", r->number,
                      scan->at);
        return;
    }
    char rest[64] = "the rest of the file is left out";
    if (scan->next < scan->length)
        (void)snprintf(rest, sizeof rest, "reading goes on at %" PRIu64, scan->next);
    bs_events_log(events, BS_WARNING, "binlog.%u:%" PRIu64 ": unreadable entry: %s; %s", r->number, scan->at,
                  scan->fault, rest);
    r->file->damaged = true;
    r->file->end_unreadable = scan->next >= scan->length;
}

static int read_entries(recovery *r)
{
    int kind;
    while ((kind = bs_scan_next(&r->scan)) != BS_SCAN_END) {
        if (kind == -ENOMEM)
            return kind;
        if (kind < 0)
            bs_scan_set_unreadable(&r->scan, kind);
        if (kind != BS_SCAN_ENTRY) {
            report(r);
            bs_scan_skip(&r->scan);
            continue;
        }
        int error = apply(r, &r->scan.entry, bs_job_table_find(&r->queue->jobs, r->scan.entry.id));
        if (error)
            return error;
    }
    r->binlog->total += (int64_t)r->scan.end - r->file->bytes;
    r->file->bytes = (int64_t)r->scan.end;
    return 0;
}

static void keep_bad_file(recovery *r, const char *name, const char *why)
{
    char kept[BS_RENAMED_MAX];
    bool renamed = bs_rename_with_suffix(r->binlog->dir_fd, name, BS_BAD_SUFFIX, kept) == 0;
    bs_events_log(r->binlog->events, BS_ERROR, "%s:0: unreadable file: %s; %s%s", name, why,
                  renamed ? "kept as " : "it stays where it is", renamed ? kept : "");
}

/* A preallocated file, or one without entries. The space of a sparse one is not kept: a preallocated file has its
 * blocks on the disk. */
static void keep_empty(recovery *r)
{
    struct stat status;
    bs_binlog_file *file = bs_binlog_add_file(r->binlog, r->number, BS_ENTRY_HEADER);
    if (r->scan.length <= BS_ENTRY_HEADER || r->scan.version != BS_VERSION || fstat(r->scan.fd, &status) != 0)
        return;
    bool sparse = (uint64_t)status.st_blocks * BLOCK < r->scan.length;
    file->unused = sparse ? BS_ENTRY_HEADER : (int64_t)r->scan.length;
}

/* Truncates the zeros after the last entry, which a kill has left. */
static void truncate_zeros(recovery *r, const char *name)
{
    const bs_binlog_file *file = r->file;
    int error = 0;
    if (file->damaged || file->bytes >= (int64_t)r->scan.length ||
        !bs_scan_rest_is_zero(&r->scan, (uint64_t)file->bytes, &error))
        return;
    int fd = bs_open_regular(r->binlog->dir_fd, name, O_RDWR);
    if (fd < 0)
        return; /* the file is only larger than needed */
    (void)bs_io_truncate(fd, file->bytes);
    (void)close(fd);
}

static int read_opened(recovery *r, const char *name, int fd)
{
    int kind = bs_scan_file(&r->scan, fd, r->number, UINT64_MAX);
    if (kind == -ENOMEM)
        return kind;
    if (kind < 0) {
        keep_bad_file(r, name, strerror(-kind));
        return 0;
    }
    if (kind == BS_SCAN_EMPTY) {
        keep_empty(r);
        return 0;
    }
    if (kind == BS_SCAN_VERSION) {
        char why[64];
        (void)snprintf(why, sizeof why, "its version is %d, not 7 or 5", r->scan.version);
        keep_bad_file(r, name, why);
        return 0;
    }
    r->file = bs_binlog_add_file(r->binlog, r->number, BS_ENTRY_HEADER);
    r->attributes_end = 0;
    int error = read_entries(r);
    if (!error)
        truncate_zeros(r, name);
    return error;
}

/* A file that cannot be opened is not damaged: a start without it would lose its jobs. */
static int read_file(recovery *r, uint32_t number)
{
    const bs_file_name name = bs_name_of_file(number, "");
    r->number = number;
    r->binlog->last_number = number;
    int fd = bs_open_regular(r->binlog->dir_fd, name.text, O_RDONLY);
    if (fd == BS_NOT_REGULAR) {
        bs_events_log(r->binlog->events, BS_ERROR, "%s:0: unreadable file: %s; it stays where it is", name.text,
                      bs_open_error(fd));
        return 0;
    }
    if (fd < 0) {
        r->binlog->unopened = name;
        return fd;
    }
    int error = read_opened(r, name.text, fd);
    (void)close(fd);
    r->scan.fd = -1;
    return error;
}

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Counts a file that the archiver has yet to read. */
static void count_done_file(bs_binlog *binlog, const char *name)
{
    struct stat status;
    if (fstatat(binlog->dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return; /* the archiver has just removed it */
    binlog->done_files++;
    binlog->done_bytes += (int64_t)status.st_size;
}

/* The numbers of the folder's files, sorted, and the highest number of renamed files. Unfinished files
 * are removed. */
static int list_files(bs_binlog *binlog, uint32_t **numbers, size_t *count, uint32_t *highest_renamed)
{
    int fd = openat(binlog->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder)
        return -errno;
    size_t capacity = 0;
    for (;;) {
        errno = 0;
        const struct dirent *item = readdir(folder);
        if (!item)
            break;
        const char *suffix;
        const uint32_t number = bs_number_of_file(item->d_name, &suffix);
        if (number == 0)
            continue;
        if (strcmp(suffix, ".new") == 0)
            (void)unlinkat(binlog->dir_fd, item->d_name, 0); /* the next file of its name replaces it in any case */
        const bool is_done = strncmp(suffix, BS_DONE_SUFFIX, sizeof BS_DONE_SUFFIX - 1) == 0;
        if (is_done)
            count_done_file(binlog, item->d_name);
        const bool is_bad = strncmp(suffix, BS_BAD_SUFFIX, sizeof BS_BAD_SUFFIX - 1) == 0;
        if ((is_done || is_bad) && number > *highest_renamed)
            *highest_renamed = number;
        if (*suffix)
            continue;
        *numbers = bs_must_grow(*numbers, *count, &capacity, sizeof **numbers);
        (*numbers)[(*count)++] = number;
    }
    const int error = -errno; /* of readdir: with a part of its files the folder must not be opened */
    (void)closedir(folder);
    if (*count > 1)
        qsort(*numbers, *count, sizeof **numbers, compare_numbers);
    return error;
}

/* --- into the queue --------------------------------------------------------------------------------- */

/* A clock that was set back must not lengthen a delay. */
static int64_t delay_left(const recovery *r, const bs_job *job)
{
    const int64_t left = job->at - r->now.wall;
    const int64_t most = (int64_t)job->delay * BS_SECOND;
    return left < most ? left : most;
}

/* Buried jobs in the order of burying, all others by id, which is the order in which most leave. */
static void restore(recovery *r)
{
    uint32_t kept = 0;
    bool sorted = true;
    for (uint32_t i = 0; i < r->job_count; i++) {
        if (!r->jobs[i])
            continue;
        r->jobs[kept] = r->jobs[i];
        sorted = sorted && (kept == 0 || r->jobs[kept - 1]->id < r->jobs[kept]->id);
        kept++;
    }
    if (!sorted)
        qsort(r->jobs, kept, sizeof(bs_job *), bs_job_compare_ids);
    uint32_t buried = 0;
    for (uint32_t i = 0; i < kept; i++) {
        bs_job *job = r->jobs[i];
        if (job->state == BS_BURIED) {
            r->jobs[buried++] = job;
            continue;
        }
        if (job->state == BS_DELAYED)
            job->at = r->now.mono + delay_left(r, job);
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

int bs_recover(bs_binlog *binlog, bs_queue *queue, bs_now now)
{
    recovery r = {.binlog = binlog, .queue = queue, .now = now};
    uint32_t *numbers = NULL;
    size_t count = 0;
    uint32_t highest_renamed = 0;
    int error = bs_scan_init(&r.scan, WINDOW);
    r.scan.find_job = find_job;
    r.scan.context = &r;
    if (!error)
        error = list_files(binlog, &numbers, &count, &highest_renamed);
    if (!error)
        error = bs_unsynced_settle(binlog, numbers, count);
    for (size_t i = 0; i < count && !error; i++) {
        r.gap_recorded = false;
        error = read_file(&r, numbers[i]);
        if (i > 0 && numbers[i] != numbers[i - 1] + 1 && !r.gap_recorded)
            bs_events_log(binlog->events, BS_WARNING, "binlog.%u follows binlog.%u: files between them are missing",
                          numbers[i], numbers[i - 1]);
    }
    if (highest_renamed > binlog->last_number)
        binlog->last_number = highest_renamed; /* or a later file of that number could not be renamed */
    if (!error) {
        bs_lengths_check(binlog);
        restore(&r);
        raise_to(&queue->shared->last_id, r.highest_id);
        raise_to(&queue->shared->last_tube, r.highest_id); /* bs_queue_restore */
        if (count > 0)
            bs_events_log(binlog->events, BS_INFO, "read %zu binlog file%s: %zu job%s", count, count == 1 ? "" : "s",
                          queue->jobs.count, queue->jobs.count == 1 ? "" : "s");
    }
    free(numbers);
    free(r.jobs);
    bs_scan_free(&r.scan);
    return error;
}
