/* Opening, starting and stopping a binlog. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/folder.h"
#include "binlog/binlog_private.h"

int bs_binlog_lock(bs_binlog *binlog)
{
    bs_close(binlog->lock_fd);
    binlog->lock_fd = bs_open_regular(binlog->dir_fd, "lock", O_RDWR | O_CREAT);
    if (binlog->lock_fd < 0)
        return binlog->lock_fd;
    int error = bs_io_lock(binlog->lock_fd);
    return error == -EACCES || error == -EAGAIN ? BS_ERR_LOCKED : error;
}

static int take_folder(bs_binlog *binlog, const bs_config *config, int wake_fd)
{
    binlog->dir_fd = bs_open_folder(config->binlog_dir);
    if (binlog->dir_fd < 0)
        return binlog->dir_fd == -ENOENT || binlog->dir_fd == -ENOTDIR ? BS_ERR_FOLDER : binlog->dir_fd;
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
        .file_size = config->file_size < BS_SPACE_FILE_MIN ? BS_SPACE_FILE_MIN : config->file_size,
        .sync_interval_ns = config->sync_interval_ns,
        .history = config->history != 0,
        .bodies = {.limit = config->body_memory, .counters = counters, .ahead = BS_BODY_AHEAD},
        .dir_fd = -1,
        .lock_fd = -1,
        .boot = bs_boot_read(),
        .fd = -1,
        .gen = 1,
        .files_ahead = 1,
        .kept_by = UINT32_MAX,
        .retry_file_at = INT64_MIN,
        .entries_before = counters->records_written, /* by this worker's predecessor */
    };
    *error = take_folder(binlog, config, wake_fd);
    if (*error) {
        bs_binlog_free(binlog);
        return NULL;
    }
    return binlog;
}

static bool is_writable(const bs_binlog *binlog, uint32_t number)
{
    int fd = bs_open_binlog(binlog->dir_fd, number, O_RDWR);
    if (fd >= 0)
        (void)close(fd);
    return fd >= 0;
}

/* Turns trailing unused files into preallocated ones. The others stay in the list, so that numbers have no gap, but are
 * truncated. */
static void adopt_unused(bs_binlog *binlog)
{
    uint32_t end = binlog->file_count;
    /* Below a renamed file, none is adopted: the first new file records the gap (lengths.c). */
    const bool gap = end > 0 && binlog->files[end - 1].number < binlog->last_number;
    while (!gap && end > 0 && binlog->files[end - 1].unused >= binlog->file_size &&
           is_writable(binlog, binlog->files[end - 1].number))
        end--;
    for (uint32_t i = 0; i < binlog->file_count; i++) {
        bs_binlog_file *file = &binlog->files[i];
        int fd = file->unused > 0 ? bs_open_binlog(binlog->dir_fd, file->number, O_RDWR) : -1;
        if (fd < 0)
            continue; /* the next start can adopt it */
        if (i >= end) {
            bs_space_add(binlog, (bs_preallocated){file->number, fd, file->unused});
            binlog->total -= file->bytes;
        } else {
            (void)bs_io_truncate(fd, BS_ENTRY_HEADER); /* if this fails, the file is merely larger */
            (void)close(fd);
        }
    }
    binlog->file_count = end;
}

static void warn_of_done_files(const bs_binlog *binlog)
{
    if (binlog->history || binlog->done_files == 0)
        return;
    bs_events_log(binlog->events, BS_WARNING,
                  "binlog files wait for an archiver: %u, with %lld bytes, named binlog.*" BS_DONE_SUFFIX
                  "; serve with --history to have them archived, or remove them",
                  binlog->done_files, (long long)binlog->done_bytes);
}

int bs_binlog_start(bs_binlog *binlog, bs_now now)
{
    warn_of_done_files(binlog);
    const bool durable = binlog->sync_interval_ns >= 0;
    binlog->preallocator = bs_preallocator_new(binlog->dir_fd, durable, binlog->history, binlog->wake_fd);
    if (!binlog->preallocator)
        return -ENOMEM;
    adopt_unused(binlog);
    int error = bs_space_first_file(binlog);
    if (error)
        return error;
    bs_lengths_begin(binlog);
    bs_binlog_open_next(binlog, now);
    bs_lengths_append(binlog, now);
    bs_binlog_write_buffer(binlog);
    if (durable)
        bs_unsynced_from(binlog, bs_binlog_current_file(binlog)->number);
    bs_space_request_ahead(binlog, now);
    if (binlog->replica)
        binlog->dirty = true; /* the first sync offers all files, and is durable when they are stored */
    else
        bs_binlog_set_durable_position(binlog, bs_binlog_current_file(binlog)->number, BS_ENTRY_HEADER);
    return 0;
}

int bs_binlog_stop(bs_binlog *binlog, bs_now now)
{
    if (!binlog || binlog->fd < 0)
        return 0;
    bs_binlog_write_reserves_until(binlog, INT64_MAX - 1, now);
    /* No compaction: its copies of reserved jobs would be behind the entries that keep their reservations. */
    binlog->appended = 0;
    if (bs_binlog_poll(binlog, true, now) < 0 || bs_binlog_write(binlog, now) < 0)
        return BS_ERR_BINLOG;
    size_t count;
    bs_sync_file *files = bs_binlog_begin_sync(binlog, &count);
    files[count - 1].complete_at = binlog->end;
    binlog->fd = -1;
    const bool durable = binlog->sync_interval_ns >= 0;
    int64_t took;
    int error = bs_sync_files(files, count, durable, &took);
    if (!error)
        (void)bs_binlog_replicated(binlog, true, now);
    if (bs_binlog_end_sync(binlog, error, durable ? took : -1, now) < 0)
        return BS_ERR_BINLOG;
    /* A replica must not lack a file of this folder. */
    const uint32_t kept = !binlog->replica && bs_lengths_finish(binlog, now) ? 1 : 0;
    /* On a full disk the next start needs them. The last one is removed first, so that a kill leaves no gap. */
    for (uint32_t i = binlog->ready_count; i > kept && !binlog->file_failed; i--)
        bs_preallocator_request(binlog->preallocator, BS_FILE_DISCARD, binlog->ready[i - 1].number, 0);
    if (durable)
        bs_unsynced_none(binlog);
    return 0;
}

void bs_binlog_free(bs_binlog *binlog)
{
    if (!binlog)
        return;
    bs_syncer_free(binlog->syncer);
    for (uint32_t i = 0; i < binlog->ready_count; i++)
        (void)close(binlog->ready[i].fd);
    bs_preallocator_free(binlog->preallocator);
    for (size_t i = 0; i < binlog->complete_count; i++)
        (void)close(binlog->complete[i].fd);
    bs_close(binlog->fd);
    bs_compaction_free(binlog->compaction);
    bs_bodies_free(&binlog->bodies);
    bs_close(binlog->lock_fd);
    bs_close(binlog->dir_fd);
    bs_bytes_free(&binlog->buffer);
    free(binlog->pending_reserves.ring);
    free(binlog->files);
    free(binlog->complete);
    free(binlog->ready);
    free(binlog);
}
