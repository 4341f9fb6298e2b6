/* Space for entries (invariant B1): the preallocated files, what fits into them, and when to request more. */
#include "binlog/binlog_private.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

enum { MOST_AHEAD = 2, MOST_REQUESTED = 4, BLOCK = 4096 };

#define RETRY (250 * BS_MILLISECOND)

static uint64_t short_entries_in(int64_t bytes)
{
    return bytes > 0 ? (uint64_t)bytes / BS_ENTRY_SHORT : 0;
}

/* Returns the bytes that fit into a new file of this size besides the entry with the highest id. */
static int64_t space_in(int64_t size)
{
    return size - BS_ENTRY_HEADER - BS_ENTRY_SHORT;
}

bool bs_space_in_current(const bs_binlog *binlog, int64_t size, uint64_t owed)
{
    int64_t left = binlog->size - binlog->end - size;
    return left >= 0 && short_entries_in(left) + binlog->ready_short_entries >= owed;
}

bool bs_space_in_next(const bs_binlog *binlog, int64_t size, uint64_t owed)
{
    uint64_t behind = binlog->ready_short_entries;
    for (uint32_t i = 0; i < binlog->ready_count; i++) {
        const bs_preallocated *ready = &binlog->ready[i];
        int64_t left = space_in(ready->size) - size;
        behind -= short_entries_in(space_in(ready->size));
        if (left >= 0)
            return short_entries_in(left) + behind >= owed;
    }
    return false;
}

static void request_file(bs_binlog *binlog, int64_t size)
{
    bs_preallocator_request(binlog->preallocator, BS_FILE_MAKE, ++binlog->last_number, size);
    binlog->files_requested++;
}

/* Returns the size of a file for an entry and the short one owed to it: the usual size, unless the entry needs more and
 * no present file has space for it. */
static int64_t size_for(const bs_binlog *binlog, int64_t size)
{
    if (size <= space_in(binlog->file_size) || size <= binlog->size - binlog->end)
        return binlog->file_size;
    for (uint32_t i = 0; i < binlog->ready_count; i++)
        if (size <= space_in(binlog->ready[i].size))
            return binlog->file_size;
    return BS_ENTRY_HEADER + BS_ENTRY_SHORT + size + BS_ENTRY_SHORT;
}

static void report_failed_file(bs_binlog *binlog, const bs_preallocated *ready, bs_now now)
{
    binlog->retry_file_at = now.mono + RETRY;
    if (!binlog->file_failed)
        bs_events_log(binlog->events, BS_ERROR,
                      "cannot make binlog.%u: %s; puts are refused once the existing files are full", ready->number,
                      strerror(-ready->fd));
    binlog->file_failed = true;
}

void bs_space_refused(bs_binlog *binlog, int64_t size)
{
    if (size > space_in(binlog->file_size))
        return; /* no file is kept ready for such an entry, and smaller ones may still fit */
    if (!binlog->full)
        bs_events_log(binlog->events, BS_ERROR, "the binlog is full: puts are refused until there is space on disk");
    if (!binlog->full || size < binlog->full_size)
        binlog->full_size = size;
    binlog->full = true;
}

void bs_space_update_full(bs_binlog *binlog)
{
    /* Only a new file ends this state, because a delete uses the space owed to it. So it does not change with each
     * command. */
    if (!binlog->full)
        return;
    if (!bs_space_in_current(binlog, binlog->full_size, binlog->owed + 1) &&
        !bs_space_in_next(binlog, binlog->full_size, binlog->owed + 1))
        return;
    bs_events_log(binlog->events, BS_WARNING, "there is space for the binlog again: puts are accepted");
    binlog->full = false;
}

void bs_space_add(bs_binlog *binlog, bs_preallocated ready)
{
    binlog->ready = bs_must_grow(binlog->ready, binlog->ready_count, &binlog->ready_capacity, sizeof *binlog->ready);
    binlog->ready[binlog->ready_count++] = ready;
    binlog->ready_short_entries += short_entries_in(space_in(ready.size));
}

bs_preallocated bs_space_next_file(bs_binlog *binlog)
{
    bs_preallocated next = binlog->ready[0];
    binlog->ready_count--;
    memmove(binlog->ready, binlog->ready + 1, binlog->ready_count * sizeof *binlog->ready);
    binlog->ready_short_entries -= short_entries_in(space_in(next.size));
    return next;
}

bool bs_space_take(bs_binlog *binlog, bool wait, bs_now now)
{
    bs_preallocated ready;
    while (bs_preallocator_take(binlog->preallocator, wait, &ready)) {
        binlog->files_requested--;
        if (ready.fd < 0) {
            report_failed_file(binlog, &ready, now);
            continue;
        }
        if (binlog->file_failed && !binlog->full)
            bs_events_log(binlog->events, BS_WARNING, "made binlog.%u: there is space on disk again", ready.number);
        binlog->file_failed = false;
        bs_space_add(binlog, ready);
        return true;
    }
    if (binlog->file_failed && binlog->files_requested == 0) /* reuse the numbers of files that could not be made */
        binlog->last_number = binlog->ready_count ? binlog->ready[binlog->ready_count - 1].number
                                                  : binlog->files[binlog->file_count - 1].number;
    return false;
}

bool bs_space_wait(bs_binlog *binlog, int64_t size, bs_now now)
{
    if (bs_space_take(binlog, false, now))
        return true;
    if (binlog->files_requested == 0) {
        if (now.mono < binlog->retry_file_at)
            return false;
        request_file(binlog, size_for(binlog, size));
    }
    bs_space_ran_out(binlog);
    return bs_space_take(binlog, true, now);
}

void bs_space_ran_out(bs_binlog *binlog)
{
    if (binlog->files_ahead < MOST_AHEAD)
        binlog->files_ahead++;
}

void bs_space_request_ahead(bs_binlog *binlog, bs_now now)
{
    while (bs_space_take(binlog, false, now))
        continue;
    uint64_t per_file = short_entries_in(space_in(binlog->file_size));
    uint64_t wanted = binlog->owed / per_file + binlog->files_ahead;
    while (binlog->ready_count + binlog->files_requested < wanted && binlog->files_requested < MOST_REQUESTED &&
           now.mono >= binlog->retry_file_at)
        request_file(binlog, binlog->file_size);
    if (binlog->file_failed && binlog->files_requested == 0 && now.mono >= binlog->retry_file_at)
        request_file(binlog, binlog->file_size); /* only another request shows whether there is space again */
    /* Give back files needed for jobs that are gone, but keep one, so that it need not be made again at once. */
    while (binlog->files_requested == 0 && binlog->ready_count > wanted + 1) {
        const bs_preallocated *surplus = &binlog->ready[--binlog->ready_count];
        binlog->ready_short_entries -= short_entries_in(space_in(surplus->size));
        (void)close(surplus->fd);
        bs_preallocator_request(binlog->preallocator, BS_FILE_DISCARD, surplus->number, 0);
        binlog->last_number = surplus->number - 1;
    }
}

int bs_space_first_file(bs_binlog *binlog)
{
    bs_preallocated first = {.fd = 0};
    if (binlog->ready_count > 0)
        return 0;
    /* On a full disk the existing jobs can still be finished in a smaller file: with space for the owed deletes, or for
     * some of them. */
    const int64_t for_deletes = (int64_t)binlog->owed * BS_ENTRY_SHORT + BS_SPACE_FILE_MIN;
    const int64_t sizes[] = {binlog->file_size, (for_deletes + BLOCK - 1) / BLOCK * BLOCK, BLOCK};
    binlog->last_number++;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t size = sizes[i] < binlog->file_size ? sizes[i] : binlog->file_size;
        bs_preallocator_request(binlog->preallocator, BS_FILE_MAKE, binlog->last_number, size);
        (void)bs_preallocator_take(binlog->preallocator, true, &first); /* one was requested, so one comes */
        if (first.fd >= 0) {
            bs_space_add(binlog, first);
            return 0;
        }
    }
    return first.fd;
}
