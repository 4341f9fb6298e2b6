#include "recover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc.h"
#include "entry.h"
#include "io.h"
#include "tube.h"

enum { SECOND = 1000000000, MICROSECOND = 1000, NAME_BYTES = 32 };

/* C beanstalkd counts in an int. */
#define HIGHEST_NUMBER UINT64_C(2147483647)

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
    int64_t log_time; /* latest time seen so far: what is known of an entry without a time of its own */
    char *data;       /* the file being read */
    size_t length;
    size_t capacity;
    uint32_t number;
    int version;
    bool ours; /* some entry here is sound and says it was written to this file */
} start;

/* --- entries ---------------------------------------------------------------------------------------- */

/* Entries of C beanstalkd have no time of burying; theirs is just after all that came before. */
static void set_times(start *s, bs_job *job, const bs_entry *entry)
{
    bool has_deadline = entry->state == BS_DELAYED || entry->state == BS_RESERVED;
    if (has_deadline || entry->sound)
        job->at = entry->at;
    else
        job->at = entry->state == BS_BURIED ? s->log_time + 1 : entry->created_at;
    int64_t known = has_deadline ? entry->created_at : job->at;
    if (known > s->log_time)
        s->log_time = known;
}

static uint32_t seconds(int64_t nanoseconds)
{
    return (uint32_t)((nanoseconds + SECOND - 1) / SECOND);
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
    set_times(s, job, entry);
}

static void remember(start *s, bs_job *job)
{
    if (s->job_count == s->job_capacity) {
        s->job_capacity = s->job_capacity ? s->job_capacity * 2 : 1024;
        s->jobs = bs_must_realloc(s->jobs, s->job_capacity, sizeof(bs_job *));
    }
    job->place = s->job_count;
    s->jobs[s->job_count++] = job;
}

static void left_file(start *s, const bs_job *job)
{
    bs_binlog_file *file = bs_binlog_find_file(s->binlog, job->file);
    if (file && file->jobs > 0)
        file->jobs--;
}

static void forget(start *s, bs_job *job)
{
    left_file(s, job);
    s->binlog->alive -= (int64_t)bs_entry_full_size(job) + (job->has_short ? BS_ENTRY_SHORT : 0);
    s->binlog->owed--;
    s->jobs[job->place] = NULL;
    bs_job_table_remove(&s->queue->jobs, job);
    bs_queue_drop_job(s->queue, job);
}

static int new_job(start *s, const bs_entry *entry, bs_job **made)
{
    bs_tube *tube =
        bs_tubes_get(&s->queue->tubes, entry->name, entry->name_length, &s->queue->shared->last_tube);
    bs_job *job = tube ? bs_job_new(entry->id, entry->body_size) : NULL;
    if (!job || bs_job_table_add(&s->queue->jobs, job) != 0) {
        free(job);
        return -ENOMEM;
    }
    s->queue->counters->tubes = s->queue->tubes.count;
    job->tube = tube;
    tube->jobs++;
    memcpy(job->body, entry->body, entry->body_size);
    remember(s, job);
    int64_t size = (int64_t)bs_entry_full_size(job);
    s->binlog->owed++;
    s->binlog->alive += size;
    if (size > s->binlog->largest)
        s->binlog->largest = size;
    *made = job;
    return 0;
}

/* 0, or a negative errno. */
static int apply_full(start *s, const bs_entry *entry, bs_job *job)
{
    if (job) {
        left_file(s, job);
        if (job->has_short)
            s->binlog->alive -= BS_ENTRY_SHORT;
        job->has_short = 0;
    } else {
        int error = new_job(s, entry, &job);
        if (error)
            return error;
    }
    set_job(s, job, entry);
    job->file = s->number;
    bs_binlog_find_file(s->binlog, s->number)->jobs++;
    return 0;
}

static void apply_short(start *s, const bs_entry *entry, bs_job *job)
{
    if (!job)
        return; /* it was deleted, or moved on, and the file with its full entry is gone */
    if (!job->has_short)
        s->binlog->alive += BS_ENTRY_SHORT;
    job->has_short = 1;
    set_job(s, job, entry);
}

static int apply(start *s, const bs_entry *entry, bs_job *job)
{
    /* An id that only an unchecked short entry tells is no reason to skip numbers. */
    if (entry->id > s->highest_id && (entry->name_length > 0 || entry->sound))
        s->highest_id = entry->id;
    if (entry->state == BS_INVALID) {
        if (job)
            forget(s, job);
        return 0;
    }
    if (entry->name_length > 0)
        return apply_full(s, entry, job);
    apply_short(s, entry, job);
    return 0;
}

/* --- files ------------------------------------------------------------------------------------------ */

/* Why an entry cannot be used, or NULL. */
static const char *fault_of(start *s, const bs_entry *entry, const bs_job *job)
{
    bool of_this_file = entry->marked && entry->tag == (uint16_t)s->number;
    if (entry->sound)
        s->ours = s->ours || of_this_file;
    else if (of_this_file && !(job && job->session == entry->crc))
        return "its checksum is wrong";
    else if (s->ours)
        return "it has no checksum of this file";
    /* C beanstalkd writes this padding as zeros, or with the mark beside it, and always a time: so this is what is left
     * of an entry of ours, cut before its mark. */
    else if (s->version == BS_VERSION && !entry->marked && (entry->crc != 0 || entry->created_at == 0))
        return "it is torn";
    if (job && entry->name_length > 0 && job->body_size != entry->body_size)
        return "its size is not that of the same job before";
    return NULL;
}

/* From `offset` on, the next entry that a sound checksum proves to belong to this file; the length if none. */
static size_t resync(const start *s, size_t offset)
{
    const size_t mark_at = BS_ENTRY_SHORT - 3;
    bs_entry entry;
    if (s->version != BS_VERSION)
        return s->length;
    for (; offset + BS_ENTRY_SHORT <= s->length; offset++) {
        int32_t name_length;
        memcpy(&name_length, s->data + offset, sizeof name_length);
        if (name_length < 0 || name_length > BS_TUBE_NAME_MAX)
            continue;
        size_t mark = offset + (size_t)name_length + mark_at;
        if (mark >= s->length || (uint8_t)s->data[mark] != BS_ENTRY_MARK)
            continue;
        if (bs_entry_decode(s->data + offset, s->length - offset, s->version, &entry) > 0 && entry.sound &&
            entry.tag == (uint16_t)s->number)
            return offset;
    }
    return s->length;
}

static bool only_zeros(const char *data, size_t length)
{
    return length == 0 || (data[0] == 0 && memcmp(data, data + 1, length - 1) == 0);
}

/* Is this what a crash leaves of an entry that was being written: its first bytes, then nothing more in the file? */
static bool torn(const start *s, size_t offset, const bs_entry *entry)
{
    size_t end = s->length;
    while (end > offset && s->data[end - 1] == 0)
        end--;
    /* A whole entry ends with the CR LF of its body, or with the mark and a file number that may be zero. */
    size_t least = entry->size ? entry->size - 2 : BS_ENTRY_SHORT + BS_TUBE_NAME_MAX;
    return end - offset < least;
}

/* Reports what is wrong at an offset and finds where to go on. */
static size_t report(start *s, size_t offset, const bs_entry *entry, const char *fault)
{
    size_t next = resync(s, offset + 1);
    bs_events *events = s->binlog->events;
    if (next < s->length)
        bs_events_log(events, BS_WARNING, "binlog.%u:%zu: unreadable entry: %s; reading goes on at %zu", s->number,
                      offset, fault, next);
    else if (torn(s, offset, entry)) {
        bs_events_log(events, BS_WARNING, "binlog.%u:%zu: the last entry was not written to its end; it is left out",
                      s->number, offset);
        return next;
    } else
        bs_events_log(events, BS_WARNING, "binlog.%u:%zu: unreadable entry: %s; the rest of the file is left out",
                      s->number, offset, fault);
    bs_binlog_find_file(s->binlog, s->number)->damaged = true;
    return next;
}

static int read_entries(start *s)
{
    size_t offset = s->version == BS_VERSION || s->version == BS_VERSION_5 ? BS_ENTRY_HEADER : 0;
    size_t end = offset;
    while (offset < s->length) {
        bs_entry entry;
        int64_t size = bs_entry_decode(s->data + offset, s->length - offset, s->version, &entry);
        const char *fault = NULL;
        bs_job *job = NULL;
        if (size == BS_ENTRY_END && only_zeros(s->data + offset, s->length - offset))
            break;
        if (size == BS_ENTRY_END || size == BS_ENTRY_BAD)
            fault = "it is torn or overwritten";
        else if (size == BS_ENTRY_CUT && !only_zeros(s->data + offset, s->length - offset))
            fault = "it is cut";
        else if (size == BS_ENTRY_CUT)
            break;
        if (!fault) {
            job = bs_job_table_find(&s->queue->jobs, entry.id);
            fault = fault_of(s, &entry, job);
        }
        if (fault) {
            size_t next = report(s, offset, &entry, fault);
            end = next < s->length ? next : offset;
            offset = next;
            continue;
        }
        int error = apply(s, &entry, job);
        if (error)
            return error;
        offset += (size_t)size;
        end = offset;
    }
    bs_binlog_file *file = bs_binlog_find_file(s->binlog, s->number);
    s->binlog->total += (int64_t)end - file->bytes;
    file->bytes = (int64_t)end;
    return 0;
}

/* Reads a whole file into `data`. 0 or a negative errno. */
static int load(start *s, const char *name)
{
    int fd = bs_io.open(s->binlog->dir_fd, name, O_RDONLY);
    if (fd < 0)
        return -errno;
    struct stat status;
    int error = fstat(fd, &status) != 0 ? -errno : 0;
    size_t size = error ? 0 : (size_t)status.st_size;
    if (size > s->capacity) {
        char *data = realloc(s->data, size);
        if (!data) {
            (void)close(fd);
            return -ENOMEM;
        }
        s->data = data;
        s->capacity = size;
    }
    s->length = 0;
    while (!error && s->length < size) {
        ssize_t got = bs_io.read(fd, s->data + s->length, size - s->length, (off_t)s->length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            error = -errno;
        if (got <= 0)
            break;
        s->length += (size_t)got;
    }
    (void)close(fd);
    return error;
}

static void set_aside(start *s, const char *name, const char *why)
{
    char aside[BS_ASIDE_BYTES];
    bool renamed = bs_keep_aside(s->binlog->dir_fd, name, aside) == 0;
    bs_events_log(s->binlog->events, BS_ERROR, "%s:0: unreadable file: %s; %s%s", name, why,
                  renamed ? "kept as " : "it stays where it is", renamed ? aside : "");
}

/* A spare that was left, or a file that nothing came into. */
static void keep_empty(start *s)
{
    const int32_t version = BS_VERSION;
    bs_binlog_file *file = bs_binlog_add_file(s->binlog, s->number, BS_ENTRY_HEADER);
    if (s->length > BS_ENTRY_HEADER && memcmp(s->data, &version, sizeof version) == 0)
        file->unused = (int64_t)s->length;
}

/* Gives back the zeros behind the last entry, which a kill has left. */
static void cut(start *s, const char *name)
{
    const bs_binlog_file *file = bs_binlog_find_file(s->binlog, s->number);
    if (file->damaged || file->bytes >= (int64_t)s->length ||
        !only_zeros(s->data + file->bytes, s->length - (size_t)file->bytes))
        return;
    int fd = bs_io.open(s->binlog->dir_fd, name, O_RDWR);
    if (fd < 0)
        return; /* the file is merely larger than it need be */
    (void)bs_io.truncate(fd, file->bytes);
    (void)close(fd);
}

static int read_file(start *s, uint32_t number)
{
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "binlog.%u", number);
    s->number = number;
    s->ours = false;
    s->binlog->last_number = number;
    int error = load(s, name);
    if (error == -ENOMEM)
        return error;
    if (error) {
        set_aside(s, name, strerror(-error));
        return 0;
    }
    if (s->length <= BS_ENTRY_HEADER || only_zeros(s->data + BS_ENTRY_HEADER, s->length - BS_ENTRY_HEADER)) {
        keep_empty(s);
        return 0;
    }
    memcpy(&s->version, s->data, sizeof s->version);
    if (s->version != BS_VERSION && s->version != BS_VERSION_5) {
        char why[64];
        (void)snprintf(why, sizeof why, "its version is %d, not 7 or 5", s->version);
        set_aside(s, name, why);
        return 0;
    }
    (void)bs_binlog_add_file(s->binlog, number, BS_ENTRY_HEADER);
    error = read_entries(s);
    if (!error)
        cut(s, name);
    return error;
}

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The numbers of the folder's files, sorted, and the highest of those kept aside. Unfinished files are removed. */
static int list_files(const bs_binlog *binlog, uint32_t **numbers, size_t *count, uint32_t *highest_aside)
{
    int fd = openat(binlog->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder)
        return -errno;
    size_t capacity = 0;
    for (const struct dirent *item; (item = readdir(folder));) {
        unsigned long long parsed;
        int used = 0;
        char plain[NAME_BYTES];
        if (sscanf(item->d_name, "binlog.%10llu%n", &parsed, &used) != 1 || parsed == 0 || parsed > HIGHEST_NUMBER)
            continue;
        uint32_t number = (uint32_t)parsed;
        (void)snprintf(plain, sizeof plain, "binlog.%u", number);
        if (strncmp(item->d_name, plain, strlen(plain)) != 0 || (size_t)used != strlen(plain))
            continue; /* binlog.007 is not one of ours */
        if (strcmp(item->d_name + used, ".new") == 0)
            (void)unlinkat(binlog->dir_fd, item->d_name, 0); /* the next one of its name replaces it anyway */
        if (strncmp(item->d_name + used, ".bad", 4) == 0 && number > *highest_aside)
            *highest_aside = number;
        if (item->d_name[used] != '\0')
            continue;
        if (*count == capacity) {
            capacity = capacity ? capacity * 2 : 64;
            *numbers = bs_must_realloc(*numbers, capacity, sizeof **numbers);
        }
        (*numbers)[(*count)++] = number;
    }
    (void)closedir(folder);
    if (*count > 1)
        qsort(*numbers, *count, sizeof **numbers, compare_numbers);
    return 0;
}

/* --- into the queue --------------------------------------------------------------------------------- */

/* Buried jobs in the order of burying, all others by id, which is the order in which most will leave. */
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
            job->at = s->now.mono + (job->at - s->now.wall);
        bs_queue_restore(s->queue, job, s->now);
    }
    if (buried > 1)
        qsort(s->jobs, buried, sizeof(bs_job *), bs_job_compare_buried);
    for (uint32_t i = 0; i < buried; i++)
        bs_queue_restore(s->queue, s->jobs[i], s->now);
}

static void raise_last_id(bs_shared *shared, uint64_t id)
{
    uint64_t last = __atomic_load_n(&shared->last_id, __ATOMIC_RELAXED);
    while (last < id &&
           !__atomic_compare_exchange_n(&shared->last_id, &last, id, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

int bs_recover(bs_binlog *binlog, bs_queue *queue, bs_now now)
{
    start s = {.binlog = binlog, .queue = queue, .now = now};
    uint32_t *numbers = NULL;
    size_t count = 0;
    uint32_t highest_aside = 0;
    int error = list_files(binlog, &numbers, &count, &highest_aside);
    for (size_t i = 0; i < count && !error; i++) {
        if (i > 0 && numbers[i] != numbers[i - 1] + 1)
            bs_events_log(binlog->events, BS_WARNING, "binlog.%u follows binlog.%u: files between them are missing",
                          numbers[i], numbers[i - 1]);
        error = read_file(&s, numbers[i]);
    }
    if (highest_aside > binlog->last_number)
        binlog->last_number = highest_aside; /* or a later file of that number could not be kept aside */
    if (!error) {
        restore(&s);
        raise_last_id(queue->shared, s.highest_id);
        if (count > 0)
            bs_events_log(binlog->events, BS_INFO, "read %zu binlog files: %zu jobs", count, queue->jobs.count);
    }
    free(numbers);
    free(s.jobs);
    free(s.data);
    return error;
}
