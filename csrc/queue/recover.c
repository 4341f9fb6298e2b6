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
    bool gap_recorded; /* this file records that the one before its number never existed */
} start;

/* --- entries ---------------------------------------------------------------------------------------- */

static uint32_t seconds(int64_t nanoseconds)
{
    return (uint32_t)((nanoseconds + BS_SECOND - 1) / BS_SECOND);
}

static void set_job(start *s, bs_job *job, const bs_entry *entry)
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
    job->at = bs_entry_at(entry, &s->log_time);
}

static void leave_file(start *s, const bs_job *job)
{
    bs_binlog_file *file = bs_binlog_find_file(s->binlog, job->file);
    if (file && file->jobs > 0)
        file->jobs--;
}

static void delete_job(start *s, bs_job *job)
{
    leave_file(s, job);
    s->binlog->alive -= (int64_t)bs_entry_full_size(job) + (job->has_short ? BS_ENTRY_SHORT : 0);
    s->binlog->owed--;
    s->jobs[job->place] = NULL;
    bs_job_table_remove(&s->queue->jobs, job);
    bs_queue_drop_job(s->queue, job);
}

static int new_job(start *s, const bs_entry *entry, bs_job **made)
{
    const size_t known = s->queue->tubes.count;
    bs_tube *tube =
        bs_tubes_get(&s->queue->tubes, entry->name, entry->name_length, &s->queue->shared->last_tube);
    if (tube && s->queue->tubes.count > known)
        tube->number = UINT64_MAX; /* bs_queue_restore */
    bs_job *job = tube ? bs_job_new(entry->id, entry->body_size, s->queue->bodies != NULL) : NULL;
    if (!job || bs_job_table_add(&s->queue->jobs, job) != 0) {
        bs_job_free(job);
        return -ENOMEM;
    }
    s->queue->counters->tubes = s->queue->tubes.count;
    job->tube = tube;
    tube->jobs++;
    tube->bytes += entry->body_size;
    s->queue->counters->job_bytes += bs_job_record_bytes(job);
    s->jobs = bs_must_fit(s->jobs, s->job_count, &s->job_capacity, sizeof(bs_job *));
    job->place = s->job_count;
    s->jobs[s->job_count++] = job;
    s->binlog->owed++;
    s->binlog->alive += (int64_t)bs_entry_full_size(job);
    *made = job;
    return 0;
}

/* 0, or a negative errno. */
static int apply_full(start *s, const bs_entry *entry, bs_job *job)
{
    if (job) {
        leave_file(s, job);
        if (job->has_short)
            s->binlog->alive -= BS_ENTRY_SHORT;
        job->has_short = 0;
    } else {
        int error = new_job(s, entry, &job);
        if (error)
            return error;
    }
    set_job(s, job, entry);
    job->file = s->number & BS_FILE_NUMBER_MAX;
    s->file->jobs++;
    /* The last body counts, as for the tools. */
    if (job->separate)
        return bs_body_recovered(s->queue->bodies, job, &s->scan, entry);
    return bs_scan_copy_body(&s->scan, s->scan.at, entry, entry->body_size, job->inline_body);
}

/* A later file records the length of an earlier one. */
static void take_length(start *s, const bs_entry *entry)
{
    if (entry->length_of + 1 == s->number && entry->length == BS_ENTRY_HEADER)
        s->gap_recorded = true;
    bs_binlog_file *file = entry->length_of < s->number ? bs_binlog_find_file(s->binlog, entry->length_of) : NULL;
    if (!file)
        return; /* it is not needed any more */
    file->length = (int64_t)entry->length;
    file->length_in = s->number;
    file->length_boot = entry->length_boot;
}

static int apply(start *s, const bs_entry *entry, bs_job *job)
{
    if (entry->length_of) {
        take_length(s, entry);
        return 0;
    }
    if (!bs_entry_has_no_job(entry))
        s->file->used = true;
    /* An id in nothing but an unchecked short entry is no reason to skip numbers. */
    if (entry->id > s->highest_id && (entry->name_length > 0 || entry->sound))
        s->highest_id = entry->id;
    if (entry->state == BS_INVALID) {
        if (job)
            delete_job(s, job);
        return 0;
    }
    if (entry->name_length > 0)
        return apply_full(s, entry, job);
    if (!job)
        return 0; /* it was deleted, or moved to a later file, and the file with its full entry is gone */
    if (!job->has_short)
        s->binlog->alive += BS_ENTRY_SHORT;
    job->has_short = 1;
    set_job(s, job, entry);
    return 0;
}

/* --- files ------------------------------------------------------------------------------------------ */

static bool find_job(void *context, uint64_t id, bool last, bs_entry *entry)
{
    const start *s = context;
    const bs_job *job = bs_job_table_find(&s->queue->jobs, id);
    (void)last;
    if (job)
        *entry = (bs_entry){.name = job->tube->name,
                            .name_length = job->tube->name_length,
                            .body_size = job->body_size,
                            .crc = job->session};
    return job != NULL;
}

/* Logs a fault. An entry at the end that a crash has cut short is logged, but is no damage. */
static void report(start *s)
{
    const bs_scan *scan = &s->scan;
    bs_events *events = s->binlog->events;
    if (scan->torn) {
        bs_events_log(events, BS_WARNING,
                      "binlog.%u:%" PRIu64 ": the last entry was not written to its end; it is left out", s->number,
                      scan->at);
        return;
    }
    char rest[64] = "the rest of the file is left out";
    if (scan->next < scan->length)
        (void)snprintf(rest, sizeof rest, "reading goes on at %" PRIu64, scan->next);
    bs_events_log(events, BS_WARNING, "binlog.%u:%" PRIu64 ": unreadable entry: %s; %s", s->number, scan->at,
                  scan->fault, rest);
    s->file->damaged = true;
    s->file->end_unreadable = scan->next >= scan->length;
}

static int read_entries(start *s)
{
    int found;
    while ((found = bs_scan_next(&s->scan)) != BS_SCAN_END) {
        if (found == -ENOMEM)
            return found;
        if (found < 0)
            bs_scan_set_unreadable(&s->scan, found);
        if (found != BS_SCAN_ENTRY) {
            report(s);
            bs_scan_skip(&s->scan);
            continue;
        }
        int error = apply(s, &s->scan.entry, bs_job_table_find(&s->queue->jobs, s->scan.entry.id));
        if (error)
            return error;
    }
    s->binlog->total += (int64_t)s->scan.end - s->file->bytes;
    s->file->bytes = (int64_t)s->scan.end;
    return 0;
}

static void keep_bad_file(start *s, const char *name, const char *why)
{
    char kept[BS_RENAMED_MAX];
    bool renamed = bs_rename_with_suffix(s->binlog->dir_fd, name, BS_BAD_SUFFIX, kept) == 0;
    bs_events_log(s->binlog->events, BS_ERROR, "%s:0: unreadable file: %s; %s%s", name, why,
                  renamed ? "kept as " : "it stays where it is", renamed ? kept : "");
}

/* A preallocated file, or one without entries. The space of a sparse one is not kept: a preallocated file has its
 * blocks on the disk. */
static void keep_empty(start *s)
{
    struct stat status;
    bs_binlog_file *file = bs_binlog_add_file(s->binlog, s->number, BS_ENTRY_HEADER);
    if (s->scan.length <= BS_ENTRY_HEADER || s->scan.version != BS_VERSION || fstat(s->scan.fd, &status) != 0)
        return;
    bool sparse = (uint64_t)status.st_blocks * BLOCK < s->scan.length;
    file->unused = sparse ? BS_ENTRY_HEADER : (int64_t)s->scan.length;
}

/* Truncates the zeros after the last entry, which a kill has left. */
static void truncate_zeros(start *s, const char *name)
{
    const bs_binlog_file *file = s->file;
    int error = 0;
    if (file->damaged || file->bytes >= (int64_t)s->scan.length ||
        !bs_scan_rest_is_zero(&s->scan, (uint64_t)file->bytes, &error))
        return;
    int fd = bs_open_regular(s->binlog->dir_fd, name, O_RDWR);
    if (fd < 0)
        return; /* the file is only larger than needed */
    (void)bs_io_truncate(fd, file->bytes);
    (void)close(fd);
}

static int read_opened(start *s, const char *name, int fd)
{
    int kind = bs_scan_file(&s->scan, fd, s->number, UINT64_MAX);
    if (kind == -ENOMEM)
        return kind;
    if (kind < 0) {
        keep_bad_file(s, name, strerror(-kind));
        return 0;
    }
    if (kind == BS_SCAN_EMPTY) {
        keep_empty(s);
        return 0;
    }
    if (kind == BS_SCAN_VERSION) {
        char why[64];
        (void)snprintf(why, sizeof why, "its version is %d, not 7 or 5", s->scan.version);
        keep_bad_file(s, name, why);
        return 0;
    }
    s->file = bs_binlog_add_file(s->binlog, s->number, BS_ENTRY_HEADER);
    int error = read_entries(s);
    if (!error)
        truncate_zeros(s, name);
    return error;
}

/* A file that cannot be opened is not damaged: a start without it would lose its jobs. */
static int read_file(start *s, uint32_t number)
{
    const bs_file_name name = bs_name_of_file(number, "");
    s->number = number;
    s->binlog->last_number = number;
    int fd = bs_open_regular(s->binlog->dir_fd, name.text, O_RDONLY);
    if (fd == BS_NOT_REGULAR) {
        bs_events_log(s->binlog->events, BS_ERROR, "%s:0: unreadable file: %s; it stays where it is", name.text,
                      bs_open_error(fd));
        return 0;
    }
    if (fd < 0) {
        s->binlog->unopened = name;
        return fd;
    }
    int error = read_opened(s, name.text, fd);
    (void)close(fd);
    s->scan.fd = -1;
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
    for (const struct dirent *item; (item = readdir(folder));) {
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
    (void)closedir(folder);
    if (*count > 1)
        qsort(*numbers, *count, sizeof **numbers, compare_numbers);
    return 0;
}

/* --- into the queue --------------------------------------------------------------------------------- */

/* A clock that was set back must not lengthen a delay. */
static int64_t delay_left(const start *s, const bs_job *job)
{
    const int64_t left = job->at - s->now.wall;
    const int64_t most = (int64_t)job->delay * BS_SECOND;
    return left < most ? left : most;
}

/* Buried jobs in the order of burying, all others by id, which is the order in which most leave. */
static void restore(start *s)
{
    uint32_t kept = 0;
    bool sorted = true;
    for (uint32_t i = 0; i < s->job_count; i++) {
        if (!s->jobs[i])
            continue;
        s->jobs[kept] = s->jobs[i];
        sorted = sorted && (kept == 0 || s->jobs[kept - 1]->id < s->jobs[kept]->id);
        kept++;
    }
    if (!sorted)
        qsort(s->jobs, kept, sizeof(bs_job *), bs_job_compare_ids);
    uint32_t buried = 0;
    for (uint32_t i = 0; i < kept; i++) {
        bs_job *job = s->jobs[i];
        if (job->state == BS_BURIED) {
            s->jobs[buried++] = job;
            continue;
        }
        if (job->state == BS_DELAYED)
            job->at = s->now.mono + delay_left(s, job);
        bs_queue_restore(s->queue, job, s->now);
    }
    if (buried > 1)
        qsort(s->jobs, buried, sizeof(bs_job *), bs_job_compare_buried);
    for (uint32_t i = 0; i < buried; i++)
        bs_queue_restore(s->queue, s->jobs[i], s->now);
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
    start s = {.binlog = binlog, .queue = queue, .now = now};
    uint32_t *numbers = NULL;
    size_t count = 0;
    uint32_t highest_renamed = 0;
    int error = bs_scan_init(&s.scan, WINDOW);
    s.scan.find_job = find_job;
    s.scan.context = &s;
    if (!error)
        error = list_files(binlog, &numbers, &count, &highest_renamed);
    if (!error)
        error = bs_unsynced_settle(binlog, numbers, count);
    for (size_t i = 0; i < count && !error; i++) {
        s.gap_recorded = false;
        error = read_file(&s, numbers[i]);
        if (i > 0 && numbers[i] != numbers[i - 1] + 1 && !s.gap_recorded)
            bs_events_log(binlog->events, BS_WARNING, "binlog.%u follows binlog.%u: files between them are missing",
                          numbers[i], numbers[i - 1]);
    }
    if (highest_renamed > binlog->last_number)
        binlog->last_number = highest_renamed; /* or a later file of that number could not be renamed */
    if (!error) {
        bs_lengths_check(binlog);
        restore(&s);
        raise_to(&queue->shared->last_id, s.highest_id);
        raise_to(&queue->shared->last_tube, s.highest_id); /* bs_queue_restore */
        if (count > 0)
            bs_events_log(binlog->events, BS_INFO, "read %zu binlog file%s: %zu job%s", count, count == 1 ? "" : "s",
                          queue->jobs.count, queue->jobs.count == 1 ? "" : "s");
    }
    free(numbers);
    free(s.jobs);
    bs_scan_free(&s.scan);
    return error;
}
