/* Reading dropped bodies back from the binlog. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file_io.h"
#include "binlog/binlog_private.h"

enum {
    SMALLEST_AHEAD = 4096,
    LARGEST_AHEAD = 32 * 1024, /* so that the loop does not pause while a client with 100 commands in flight waits */
    AHEAD_SHARE = 4            /* reading ahead loads at most 1/4 of the limit at once */
};

/* Opens the file if it is not open. Returns 0 or a negative errno. */
static int open_file(bs_binlog *binlog, uint32_t number, const bs_body_file **opened)
{
    bs_bodies *bodies = &binlog->bodies;
    int32_t version = 0;
    *opened = &bodies->files[number % BS_BODY_FILES];
    if ((*opened)->number == number)
        return 0;
    const int fd = bs_open_binlog(binlog->dir_fd, number, O_RDONLY);
    if (fd < 0)
        return fd;
    const ssize_t got = bs_io_read(fd, &version, sizeof version, 0);
    if (got != sizeof version) {
        (void)close(fd);
        return got < 0 ? (int)got : BS_BODY_DAMAGED;
    }
    bs_io_read_ahead(fd);
    bs_bodies_set_file(bodies, (bs_body_file){number, fd, version});
    return 0;
}

/* Bytes of one file, or of the buffer, from `offset` on. */
typedef struct {
    const char *data;
    size_t length;
    uint64_t offset;
    uint32_t number;
    int version;
} bytes_read;

/* Returns 0 or a negative errno. */
static int make_piece(bs_bodies *bodies, size_t size)
{
    if (size <= bodies->piece_capacity)
        return 0;
    char *grown = realloc(bodies->piece, size);
    if (!grown)
        return -ENOMEM;
    bodies->piece = grown;
    bodies->piece_capacity = size;
    return 0;
}

/* Frees the memory of a large body. */
static void shrink_piece(bs_bodies *bodies)
{
    if (bodies->piece_capacity <= (size_t)2 * LARGEST_AHEAD)
        return;
    free(bodies->piece);
    bodies->piece = NULL;
    bodies->piece_capacity = 0;
}

/* Reads the entry of this job and up to `ahead` bytes behind it. Returns 0 or a negative errno. */
static int read_bytes(bs_binlog *binlog, const bs_job *job, size_t ahead, bytes_read *read)
{
    bs_bodies *bodies = &binlog->bodies;
    const uint64_t offset = bs_job_body_place(job)->offset;
    *read = (bytes_read){.offset = offset, .number = job->file, .version = BS_VERSION};
    if (binlog->fd >= 0 && job->file == bs_binlog_current_file(binlog)->number && (int64_t)offset >= binlog->written) {
        const size_t before = (size_t)((int64_t)offset - binlog->written);
        const size_t length = bs_bytes_length(&binlog->buffer);
        read->data = bs_bytes_data(&binlog->buffer) + before;
        read->length = before < length ? length - before : 0;
        return 0;
    }
    const bs_body_file *file;
    const size_t wanted = bs_entry_full_size(job) + sizeof(uint32_t); /* version 5 has a longer prefix */
    int error = open_file(binlog, job->file, &file);
    if (!error)
        error = make_piece(bodies, wanted + ahead);
    while (!error && read->length < wanted) {
        const ssize_t got = bs_io_read(file->fd, bodies->piece + read->length, wanted + ahead - read->length,
                                       (off_t)(offset + read->length));
        if (got < 0)
            error = (int)got;
        if (got <= 0)
            break;
        read->length += (size_t)got;
    }
    if (error)
        return error;
    read->data = bodies->piece;
    read->version = file->version;
    return 0;
}

static bool decode(const bytes_read *read, size_t at, bs_entry *entry)
{
    return bs_entry_decode(read->data + at, read->length - at, read->version, entry) > 0;
}

/* Returns whether this is the full entry of the job as it was written (M2). The job may have another id by now, in a
 * transfer. */
static bool is_entry_of(const bs_job *job, const bs_entry *entry)
{
    return entry->body && entry->body_size == job->body_size &&
           bs_entry_sum_full(entry) == bs_job_body_place(job)->sum;
}

/* Returns the job whose body is worth loading from the entry at `at`, or NULL. */
static bs_job *wanted_job(const bs_binlog *binlog, const bytes_read *read, size_t at, const bs_entry *entry)
{
    bs_job *job = entry->name_length > 0 ? bs_job_table_find(binlog->jobs, entry->id) : NULL;
    if (!job || bs_job_has_body(job) || job->file != read->number || !bs_body_is_near_head(job) ||
        bs_job_body_place(job)->offset != read->offset + at)
        return NULL;
    return job;
}

/* Loads bodies of the entries behind the first `at` bytes. Returns how many bytes of entries were useful. */
static size_t load_ahead(bs_binlog *binlog, const bytes_read *read, size_t at)
{
    bs_bodies *bodies = &binlog->bodies;
    uint64_t left = bodies->limit / AHEAD_SHARE;
    size_t useful = 0;
    bs_entry entry;
    for (; at < read->length && decode(read, at, &entry); at += entry.size) {
        bs_job *job = wanted_job(binlog, read, at, &entry);
        if (job && is_entry_of(job, &entry)) {
            const uint64_t bytes = bs_body_bytes(job->body_size);
            if (bytes > left)
                break;
            left -= bytes;
            bs_bodies_drop_to(bodies, bodies->limit - bytes);
            if (bodies->used + bytes > bodies->limit || bs_body_restore(bodies, job, entry.body) != 0)
                break;
            bodies->counters->bodies_read++;
            useful += entry.size;
        }
    }
    return useful;
}

/* Reads further ahead next time if many of the bytes were useful, and less far if few were. */
static void adapt(bs_bodies *bodies, size_t useful, size_t read)
{
    if (useful >= read / 2 && bodies->ahead < LARGEST_AHEAD)
        bodies->ahead *= 2;
    else if (useful < read / 8 && bodies->ahead > SMALLEST_AHEAD)
        bodies->ahead /= 2;
}

static int read_body(bs_binlog *binlog, bs_job *job)
{
    bs_bodies *bodies = &binlog->bodies;
    const bool in_order = bs_body_is_near_head(job);
    bytes_read read;
    bs_entry entry;
    if (job->file == 0)
        return BS_BODY_DAMAGED;
    int error = read_bytes(binlog, job, in_order ? bodies->ahead : 0, &read);
    if (!error && !(decode(&read, 0, &entry) && is_entry_of(job, &entry)))
        error = BS_BODY_DAMAGED;
    if (!error)
        error = bs_body_restore(bodies, job, entry.body);
    if (error)
        return error;
    bodies->counters->bodies_read++;
    bodies->needed = job;
    bs_bodies_drop_to(bodies, bodies->limit);
    if (in_order && read.length > entry.size)
        adapt(bodies, load_ahead(binlog, &read, entry.size), read.length - entry.size);
    return 0;
}

static void report(bs_binlog *binlog, const bs_job *job, int error)
{
    bs_bodies *bodies = &binlog->bodies;
    const uint32_t offset = bs_job_body_place(job)->offset;
    const uint32_t file = job->file;
    if (error == BS_BODY_DAMAGED)
        bs_events_log(binlog->events, BS_ERROR,
                      "binlog.%u:%" PRIu32 ": cannot read the body of job %" PRIu64 " again: the entry is damaged; it is"
                      " lost, and the file will be kept as binlog.%u.bad",
                      file, offset, job->id, file);
    else if (!bodies->failing)
        bs_events_log(binlog->events, BS_ERROR,
                      "binlog.%u:%" PRIu32 ": cannot read the body of job %" PRIu64 ": %s", file, offset, job->id,
                      bs_open_error(error));
}

int bs_body_load(bs_binlog *binlog, bs_job *job)
{
    if (bs_job_has_body(job))
        return 0;
    bs_bodies *bodies = &binlog->bodies;
    if (binlog->failed)
        return binlog->failed; /* the buffer may be in no file, so a missing entry is no damage */
    bodies->counters->bodies_awaited++;
    int error = read_body(binlog, job);
    shrink_piece(bodies);
    if (!error) {
        bodies->failing = false;
        return 0;
    }
    bodies->counters->bodies_unreadable++;
    if (job->file == 0)
        return BS_BODY_DAMAGED;
    report(binlog, job, error);
    if (error != BS_BODY_DAMAGED) {
        bodies->failing = true;
        return error;
    }
    bs_binlog_leave_damaged(binlog, job);
    return BS_BODY_DAMAGED;
}
