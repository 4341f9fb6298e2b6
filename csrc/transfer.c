#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bytes.h"
#include "core.h"
#include "entry.h"
#include "io.h"
#include "loop.h"
#include "tube.h"

enum { FLUSH_BYTES = 256 * 1024, SMALLEST = 1024 };

/* One new folder. Files are complete when the next one is begun, so nothing is filled with zeros ahead. */
typedef struct {
    int dir_fd;
    int fd; /* of the file being written, or -1 */
    uint32_t number;
    int64_t written; /* bytes of it on the way to disk */
    bs_bytes buffer; /* and those that follow */
} shard;

struct bs_transfer {
    shard *shards;
    uint32_t shard_count;
    char *colocate;
    int64_t file_size;
    bs_job **jobs; /* not owned; in the order of writing once started */
    size_t job_count;
    size_t job_capacity;
    size_t next;
    int64_t renumbered;
    bs_now now;
};

/* --- writing ---------------------------------------------------------------------------------------- */

static int flush(shard *to)
{
    size_t length = bs_bytes_length(&to->buffer);
    int error = bs_io_write_all(bs_io.write, to->fd, bs_bytes_data(&to->buffer), length, to->written);
    if (error)
        return error;
    to->written += (int64_t)length;
    to->buffer.start = 0;
    to->buffer.end = 0;
    return 0;
}

static int complete(shard *to)
{
    if (to->fd < 0)
        return 0;
    int error = flush(to);
    if (!error && bs_io.datasync(to->fd) != 0)
        error = -errno;
    if (close(to->fd) != 0 && !error && errno != EINTR)
        error = -errno;
    to->fd = -1;
    return error;
}

static int begin_file(shard *to)
{
    const int32_t version = BS_VERSION;
    char name[32];
    (void)snprintf(name, sizeof name, "binlog.%u", to->number + 1);
    char *room = bs_bytes_room(&to->buffer, sizeof version);
    if (!room)
        return -ENOMEM;
    to->fd = bs_io.open(to->dir_fd, name, O_RDWR | O_CREAT | O_EXCL);
    if (to->fd < 0)
        return -errno;
    memcpy(room, &version, sizeof version);
    bs_bytes_extend(&to->buffer, sizeof version);
    to->written = 0;
    to->number++;
    return 0;
}

/* Room for an entry at the end of the buffer, in a file that may have it. NULL with the reason in `error`. */
static char *entry_room(const bs_transfer *transfer, shard *to, size_t size, int *error)
{
    *error = 0;
    int64_t end = to->written + (int64_t)bs_bytes_length(&to->buffer);
    if (to->fd >= 0 && end + (int64_t)size > transfer->file_size)
        *error = complete(to);
    else if (bs_bytes_length(&to->buffer) >= FLUSH_BYTES)
        *error = flush(to);
    if (!*error && to->fd < 0)
        *error = begin_file(to);
    char *room = *error ? NULL : bs_bytes_room(&to->buffer, size);
    if (!room && !*error)
        *error = -ENOMEM;
    return room;
}

static int write_job(bs_transfer *transfer, const bs_job *job)
{
    const bs_tube *tube = job->tube;
    uint32_t owner = bs_shard_of(tube->name, tube->name_length, transfer->shard_count, transfer->colocate);
    shard *to = &transfer->shards[owner];
    size_t size = bs_entry_full_size(job);
    int error;
    char *room = entry_room(transfer, to, size, &error);
    if (!room)
        return error;
    int64_t at = job->state == BS_DELAYED ? job->at - transfer->now.mono + transfer->now.wall : job->at;
    (void)bs_entry_encode(room, job, (uint8_t)job->state, at, true, to->number);
    bs_bytes_extend(&to->buffer, size);
    return 0;
}

/* A reader deletes the job that this entry names, but none is there yet: it is the first entry of the folder. */
static int write_last_id(bs_transfer *transfer, shard *to, uint64_t last_id)
{
    int error;
    char *room = entry_room(transfer, to, BS_ENTRY_SHORT, &error);
    if (!room)
        return error;
    (void)bs_entry_encode_last_id(room, last_id, transfer->now.wall, to->number);
    bs_bytes_extend(&to->buffer, BS_ENTRY_SHORT);
    return 0;
}

/* --- order ------------------------------------------------------------------------------------------ */

/* The same id twice: two servers were let loose on parts of one folder. Neither job may be lost. */
static uint64_t renumber(bs_transfer *transfer, uint64_t last_id)
{
    uint64_t previous = 0;
    for (size_t i = 0; i < transfer->job_count; i++) {
        bs_job *job = transfer->jobs[i];
        if (job->id == previous) {
            job->id = ++last_id;
            transfer->renumbered++;
        } else {
            previous = job->id;
        }
    }
    return last_id;
}

/* By id, then the buried ones in the order of burying, which is all that C beanstalkd knows of it. */
static int buried_last(bs_transfer *transfer)
{
    size_t kept = 0;
    size_t buried = 0;
    bs_job **aside = malloc((transfer->job_count + 1) * sizeof *aside);
    if (!aside)
        return -ENOMEM;
    for (size_t i = 0; i < transfer->job_count; i++) {
        bs_job *job = transfer->jobs[i];
        if (job->state == BS_BURIED)
            aside[buried++] = job;
        else
            transfer->jobs[kept++] = job;
    }
    if (buried > 0) {
        qsort(aside, buried, sizeof *aside, bs_job_compare_buried);
        memcpy(transfer->jobs + kept, aside, buried * sizeof *aside);
    }
    free(aside);
    return 0;
}

/* --- what Python calls ------------------------------------------------------------------------------ */

uint32_t bs_core_damaged(const bs_core *core, uint32_t index)
{
    const bs_binlog *binlog = core->binlog;
    for (uint32_t i = binlog ? binlog->first_file : 0; binlog && i < binlog->file_end; i++)
        if (binlog->files[i].damaged && index-- == 0)
            return binlog->files[i].number;
    return 0;
}

static int open_folders(bs_transfer *transfer, const char *const *folders)
{
    for (uint32_t i = 0; i < transfer->shard_count; i++) {
        shard *to = &transfer->shards[i];
        to->dir_fd = open(folders[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (to->dir_fd < 0)
            return -errno;
    }
    return 0;
}

int bs_transfer_new(const char *const *folders, uint32_t shards, const char *colocate, int64_t file_size,
                    bs_transfer **made)
{
    bs_transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer)
        return -ENOMEM;
    transfer->file_size = file_size;
    transfer->shards = calloc(shards, sizeof *transfer->shards);
    transfer->colocate = colocate ? strdup(colocate) : NULL;
    transfer->shard_count = transfer->shards ? shards : 0;
    for (uint32_t i = 0; i < transfer->shard_count; i++)
        transfer->shards[i].dir_fd = transfer->shards[i].fd = -1;
    int error = !transfer->shards || (colocate && !transfer->colocate) ? -ENOMEM : open_folders(transfer, folders);
    if (error) {
        bs_transfer_free(transfer);
        return error;
    }
    *made = transfer;
    return 0;
}

int bs_transfer_add(bs_transfer *transfer, const bs_core *from)
{
    const bs_job_table *table = &from->server.queue.jobs;
    size_t wanted = transfer->job_count + table->count;
    if (wanted > transfer->job_capacity) {
        size_t capacity = wanted < SMALLEST ? SMALLEST : wanted;
        bs_job **grown = realloc(transfer->jobs, capacity * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        transfer->jobs = grown;
        transfer->job_capacity = capacity;
    }
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i])
            transfer->jobs[transfer->job_count++] = table->slots[i];
    return 0;
}

int64_t bs_transfer_start(bs_transfer *transfer, uint64_t last_id, bs_now now)
{
    transfer->now = now;
    if (transfer->job_count > 1)
        qsort(transfer->jobs, transfer->job_count, sizeof *transfer->jobs, bs_job_compare_ids);
    last_id = renumber(transfer, last_id);
    int error = buried_last(transfer);
    for (uint32_t i = 0; i < transfer->shard_count && last_id > 0 && !error; i++)
        error = write_last_id(transfer, &transfer->shards[i], last_id);
    return error ? error : (int64_t)transfer->job_count;
}

int64_t bs_transfer_write(bs_transfer *transfer, int64_t bytes)
{
    while (bytes > 0 && transfer->next < transfer->job_count) {
        const bs_job *job = transfer->jobs[transfer->next];
        int error = write_job(transfer, job);
        if (error)
            return error;
        transfer->next++;
        bytes -= (int64_t)bs_entry_full_size(job);
    }
    return (int64_t)(transfer->job_count - transfer->next);
}

int64_t bs_transfer_finish(bs_transfer *transfer)
{
    int error = 0;
    for (uint32_t i = 0; i < transfer->shard_count && !error; i++)
        error = complete(&transfer->shards[i]);
    return error ? error : transfer->renumbered;
}

void bs_transfer_free(bs_transfer *transfer)
{
    if (!transfer)
        return;
    for (uint32_t i = 0; i < transfer->shard_count; i++) {
        shard *to = &transfer->shards[i];
        if (to->fd >= 0)
            (void)close(to->fd);
        if (to->dir_fd >= 0)
            (void)close(to->dir_fd);
        bs_bytes_free(&to->buffer);
    }
    free(transfer->shards);
    free(transfer->colocate);
    free(transfer->jobs);
    free(transfer);
}
