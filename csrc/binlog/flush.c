/* Writes and syncs of the binlog, and the replies that wait for them. */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/histogram.h"
#include "binlog/binlog_private.h"
#include "binlog/position.h"

bs_hold bs_binlog_hold_until_sync(const bs_binlog *binlog)
{
    if (!binlog || binlog->sync_interval_ns < 0)
        return BS_HOLD_NONE;
    return binlog->dirty ? BS_HOLD_WRITTEN : binlog->syncing_dirty ? BS_HOLD_SYNCING : BS_HOLD_NONE;
}

bs_hold bs_binlog_hold(const bs_binlog *binlog)
{
    return binlog && binlog->sync_interval_ns == 0 ? bs_binlog_hold_until_sync(binlog) : BS_HOLD_NONE;
}

bs_hold bs_binlog_hold_generation(const bs_binlog *binlog, uint64_t generation)
{
    if (!binlog || binlog->sync_interval_ns != 0)
        return BS_HOLD_NONE;
    if (binlog->dirty && generation == binlog->gen)
        return BS_HOLD_WRITTEN;
    return binlog->syncing_dirty && generation == binlog->syncing ? BS_HOLD_SYNCING : BS_HOLD_NONE;
}

bs_hold bs_binlog_hold_job(const bs_binlog *binlog, const bs_job *job)
{
    if (!binlog || binlog->sync_interval_ns != 0)
        return BS_HOLD_NONE;
    if (binlog->dirty && job->gen == (binlog->gen & BS_JOB_GEN_MASK))
        return BS_HOLD_WRITTEN;
    return binlog->syncing_dirty && job->gen == (binlog->syncing & BS_JOB_GEN_MASK) ? BS_HOLD_SYNCING : BS_HOLD_NONE;
}

static void publish_sizes(const bs_binlog *binlog)
{
    bs_counters *counters = binlog->counters;
    counters->binlog_files = binlog->file_count;
    counters->binlog_bytes = (uint64_t)binlog->total;
    counters->binlog_live_bytes = (uint64_t)binlog->alive;
    counters->binlog_refusing = binlog->file_failed;
    counters->binlog_full = binlog->full;
}

void bs_binlog_set_durable_position(const bs_binlog *binlog, uint32_t file, int64_t end)
{
    if (binlog->history)
        bs_publish_durable_position(binlog->counters, file, (uint64_t)end);
}

void bs_publish_durable_position(bs_counters *counters, uint64_t file, uint64_t end)
{
    bs_position_publish(&counters->binlog_durable_file, &counters->binlog_durable_end, file, end);
}

int bs_durable_position(const bs_counters *counters, uint64_t *file, uint64_t *end)
{
    return bs_position_read(&counters->binlog_durable_file, &counters->binlog_durable_end, file, end);
}

int bs_binlog_write(bs_binlog *binlog, bs_now now)
{
    if (!binlog)
        return 0;
    if (binlog->appended) {
        const bool was_dirty = binlog->dirty;
        bs_compact(binlog, now);
        if (!was_dirty && binlog->dirty)
            bs_binlog_only_deferred(binlog, false, now); /* moves caused by deferred entries */
        binlog->appended = 0;
    }
    bs_lengths_append(binlog, now);
    /* A write may wait for a sync of the same page, which deferred entries alone do not justify. */
    if (binlog->dirty || !binlog->syncing)
        bs_binlog_write_buffer(binlog);
    bs_space_request_ahead(binlog, now);
    if (binlog->failed)
        return BS_ERR_BINLOG;
    if (binlog->sync_interval_ns < 0) {
        /* -F: nothing is synced; complete files are truncated and closed, and unneeded ones are removed. */
        int64_t took;
        int error = bs_sync_files(binlog->complete, binlog->complete_count, false, &took);
        binlog->complete_count = 0;
        binlog->dirty = binlog->deferred = false;
        if (error) {
            bs_binlog_fail(binlog, "truncate", error);
            return BS_ERR_BINLOG;
        }
        bs_binlog_set_durable_position(binlog, bs_binlog_current_file(binlog)->number, binlog->written);
        bs_binlog_collect(binlog);
    }
    bs_space_update_full(binlog);
    publish_sizes(binlog);
    return 0;
}

int64_t bs_binlog_next_sync(const bs_binlog *binlog)
{
    if (!binlog || binlog->syncing || binlog->sync_interval_ns < 0 || !(binlog->dirty || binlog->deferred))
        return INT64_MAX;
    int64_t at = binlog->sync_interval_ns == 0 ? INT64_MIN : binlog->synced_at + binlog->sync_interval_ns;
    int64_t deferred = binlog->deferred_at + BS_DEFERRED_SYNC_NS;
    return binlog->dirty || at > deferred ? at : deferred;
}

bool bs_binlog_sync_due(const bs_binlog *binlog, bs_now now)
{
    int64_t at = bs_binlog_next_sync(binlog);
    return at != INT64_MAX && at <= now.mono;
}

bs_sync_file *bs_binlog_begin_sync(bs_binlog *binlog, size_t *count)
{
    binlog->complete =
        bs_must_grow(binlog->complete, binlog->complete_count, &binlog->complete_capacity, sizeof *binlog->complete);
    binlog->complete[binlog->complete_count] = (bs_sync_file){binlog->fd, -1};
    *count = binlog->complete_count + 1;
    binlog->complete_count = 0;
    binlog->syncing = binlog->gen++;
    binlog->syncing_dirty = binlog->dirty;
    binlog->sync_file = bs_binlog_current_file(binlog)->number;
    binlog->sync_end = binlog->written;
    binlog->syncing_entries = binlog->counters->records_written - binlog->entries_before;
    binlog->entries_before = binlog->counters->records_written;
    binlog->dirty = binlog->deferred = false;
    return binlog->complete;
}

int bs_binlog_replicated(bs_binlog *binlog, bool wait, bs_now now)
{
    if (!binlog->on_disk && binlog->replica) {
        bs_replica_offer(binlog->replica, binlog->sync_file, binlog->sync_end);
        binlog->offered_at = now.mono;
    }
    binlog->on_disk = true;
    if (!binlog->replica)
        return 1;
    const int stored = bs_replica_stored(binlog->replica, binlog->sync_file, binlog->sync_end, wait);
    if (stored < 0)
        bs_binlog_fail(binlog, "replication", stored);
    return stored;
}

int bs_binlog_end_sync(bs_binlog *binlog, int error, int64_t took, bs_now now)
{
    if (error)
        bs_binlog_fail(binlog, "sync", error);
    if (binlog->failed)
        return BS_ERR_BINLOG;
    binlog->synced = binlog->syncing;
    binlog->syncing = 0;
    binlog->on_disk = false;
    binlog->syncing_dirty = false;
    binlog->synced_at = now.mono;
    bs_binlog_set_durable_position(binlog, binlog->sync_file, binlog->sync_end);
    if (binlog->sync_interval_ns >= 0)
        bs_unsynced_from(binlog, binlog->sync_file);
    binlog->counters->syncs++;
    if (took >= 0)
        bs_histogram_add(&binlog->counters->sync_time, took, 1);
    bs_histogram_add(&binlog->counters->sync_entries, (int64_t)binlog->syncing_entries, 1);
    bs_binlog_collect(binlog);
    publish_sizes(binlog);
    return 1;
}

int bs_binlog_start_sync(bs_binlog *binlog)
{
    assert(!binlog->syncing && bs_bytes_length(&binlog->buffer) == 0);
    size_t count;
    const bs_sync_file *files = bs_binlog_begin_sync(binlog, &count);
    int error = bs_syncer_start(binlog->syncer, files, count);
    if (error)
        bs_binlog_fail(binlog, "sync", error);
    return error ? BS_ERR_BINLOG : 0;
}

int bs_binlog_sync_here(bs_binlog *binlog, bs_now now)
{
    assert(!binlog->syncing && bs_bytes_length(&binlog->buffer) == 0);
    size_t count;
    const bs_sync_file *files = bs_binlog_begin_sync(binlog, &count);
    int64_t took;
    int error = bs_sync_files(files, count, true, &took);
    if (!error)
        (void)bs_binlog_replicated(binlog, true, now);
    int result = bs_binlog_end_sync(binlog, error, took, now);
    return result < 0 ? result : 0;
}

int bs_binlog_poll(bs_binlog *binlog, bool wait, bs_now now)
{
    if (!binlog)
        return 0;
    while (bs_space_take(binlog, false, now))
        continue;
    int error = bs_preallocator_retire_error(binlog->preallocator);
    if (error)
        bs_events_log(binlog->events, BS_WARNING, "cannot %s a binlog file that is no longer needed: %s",
                      binlog->history ? "hand over" : "remove", strerror(-error));
    if (!binlog->syncing)
        return 0;
    error = 0;
    if (!binlog->on_disk && !bs_syncer_ended(binlog->syncer, wait, &error, &binlog->sync_took))
        return 0;
    if (!error && bs_binlog_replicated(binlog, wait, now) == 0)
        return 0;
    return bs_binlog_end_sync(binlog, error, binlog->sync_took, now);
}
