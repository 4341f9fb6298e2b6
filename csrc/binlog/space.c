#include "binlog/space.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

enum { MILLISECOND = 1000000, RETRY_MS = 250, MOST_AHEAD = 2, MOST_ASKED = 4, BLOCK = 4096 };

/* Short entries that fit into so many bytes. */
static uint64_t slots(int64_t bytes)
{
    return bytes > 0 ? (uint64_t)bytes / BS_ENTRY_SHORT : 0;
}

int64_t bs_room_per_file(const bs_binlog *binlog)
{
    return binlog->file_size - BS_ENTRY_HEADER - BS_ENTRY_SHORT;
}

/* What a spare takes besides the entry with the highest id, bytes. */
static int64_t room_of(const bs_spare *spare)
{
    return spare->size - BS_ENTRY_HEADER - BS_ENTRY_SHORT;
}

static uint64_t slots_of(const bs_spare *spare)
{
    return slots(room_of(spare));
}

bool bs_room_current(const bs_binlog *binlog, int64_t size, uint64_t owed)
{
    int64_t left = binlog->size - binlog->end - size;
    return left >= 0 && slots(left) + binlog->spare_slots >= owed;
}

bool bs_room_next(const bs_binlog *binlog, int64_t size, uint64_t owed)
{
    uint64_t behind = binlog->spare_slots;
    for (uint32_t i = 0; i < binlog->spare_count; i++) {
        const bs_spare *spare = &binlog->spare[i];
        int64_t left = room_of(spare) - size;
        behind -= slots_of(spare);
        if (left >= 0)
            return slots(left) + behind >= owed;
    }
    return false;
}

static void ask_for_file(bs_binlog *binlog, int64_t size)
{
    bs_spares_make(binlog->spares, ++binlog->last_number, size);
    binlog->spares_asked++;
}

static void ask_for_spare(bs_binlog *binlog)
{
    ask_for_file(binlog, binlog->file_size);
}

/* Bytes of a file that takes an entry of this size, and the short one that the entry is owed: the usual ones, unless
 * the entry needs more and nothing that is there takes it. */
static int64_t size_for(const bs_binlog *binlog, int64_t size)
{
    if (size <= bs_room_per_file(binlog) || size <= binlog->size - binlog->end)
        return binlog->file_size;
    for (uint32_t i = 0; i < binlog->spare_count; i++)
        if (size <= room_of(&binlog->spare[i]))
            return binlog->file_size;
    return BS_ENTRY_HEADER + BS_ENTRY_SHORT + size + BS_ENTRY_SHORT;
}

static void refuse(bs_binlog *binlog, const bs_spare *spare, bs_now now)
{
    binlog->refused_until = now.mono + (int64_t)RETRY_MS * MILLISECOND;
    if (!binlog->refusing)
        bs_events_log(binlog->events, BS_ERROR,
                      "cannot make binlog.%u: %s; puts are refused once the existing files are full", spare->number, strerror(-spare->fd));
    binlog->refusing = true;
}

void bs_room_refused(bs_binlog *binlog, int64_t size)
{
    if (size > bs_room_per_file(binlog))
        return; /* no file is kept ready for such an entry, and others may well have room */
    if (!binlog->full)
        bs_events_log(binlog->events, BS_ERROR, "the binlog is full: puts are refused until there is room on disk");
    if (!binlog->full || size < binlog->full_size)
        binlog->full_size = size;
    binlog->full = true;
}

void bs_room_look(bs_binlog *binlog)
{
    /* Only a new file brings that room back, because a delete takes the room that was kept for it. So this does not
     * come and go with each command. */
    if (!binlog->full)
        return;
    if (!bs_room_current(binlog, binlog->full_size, binlog->owed + 1) &&
        !bs_room_next(binlog, binlog->full_size, binlog->owed + 1))
        return;
    bs_events_log(binlog->events, BS_WARNING, "there is room for the binlog again: puts are accepted");
    binlog->full = false;
}

void bs_room_add(bs_binlog *binlog, bs_spare spare)
{
    if (binlog->spare_count == binlog->spare_capacity) {
        binlog->spare_capacity = binlog->spare_capacity ? binlog->spare_capacity * 2 : 4;
        binlog->spare = bs_must_realloc(binlog->spare, binlog->spare_capacity, sizeof *binlog->spare);
    }
    binlog->spare[binlog->spare_count++] = spare;
    binlog->spare_slots += slots_of(&spare);
}

bs_spare bs_room_open(bs_binlog *binlog)
{
    bs_spare next = binlog->spare[0];
    binlog->spare_count--;
    memmove(binlog->spare, binlog->spare + 1, binlog->spare_count * sizeof *binlog->spare);
    binlog->spare_slots -= slots_of(&next);
    return next;
}

bool bs_room_take(bs_binlog *binlog, bool wait, bs_now now)
{
    bs_spare spare;
    while (bs_spares_take(binlog->spares, wait, &spare)) {
        binlog->spares_asked--;
        if (spare.fd < 0) {
            refuse(binlog, &spare, now);
            continue;
        }
        if (binlog->refusing && !binlog->full)
            bs_events_log(binlog->events, BS_WARNING, "made binlog.%u: there is room on disk again", spare.number);
        binlog->refusing = false;
        bs_room_add(binlog, spare);
        return true;
    }
    if (binlog->refusing && binlog->spares_asked == 0) /* the numbers of files that were not made are free again */
        binlog->last_number = binlog->spare_count ? binlog->spare[binlog->spare_count - 1].number
                                                  : binlog->files[binlog->file_end - 1].number;
    return false;
}

bool bs_room_wait(bs_binlog *binlog, int64_t size, bs_now now)
{
    if (bs_room_take(binlog, false, now))
        return true;
    if (binlog->spares_asked == 0) {
        if (now.mono < binlog->refused_until)
            return false;
        ask_for_file(binlog, size_for(binlog, size));
    }
    bs_room_run_out(binlog);
    return bs_room_take(binlog, true, now);
}

void bs_room_run_out(bs_binlog *binlog)
{
    if (binlog->spares_ahead < MOST_AHEAD)
        binlog->spares_ahead++;
}

void bs_room_ask_ahead(bs_binlog *binlog, bs_now now)
{
    while (bs_room_take(binlog, false, now))
        continue;
    uint64_t per_file = slots(bs_room_per_file(binlog));
    uint64_t wanted = binlog->owed / per_file + binlog->spares_ahead;
    while (binlog->spare_count + binlog->spares_asked < wanted && binlog->spares_asked < MOST_ASKED &&
           now.mono >= binlog->refused_until)
        ask_for_spare(binlog);
    if (binlog->refusing && binlog->spares_asked == 0 && now.mono >= binlog->refused_until)
        ask_for_spare(binlog); /* only whoever asks learns that there is room again */
    /* What was needed for jobs that are gone is given back, but not so eagerly that it is made again at once. */
    while (binlog->spares_asked == 0 && binlog->spare_count > wanted + 1) {
        const bs_spare *surplus = &binlog->spare[--binlog->spare_count];
        binlog->spare_slots -= slots_of(surplus);
        (void)close(surplus->fd);
        bs_spares_discard(binlog->spares, surplus->number);
        binlog->last_number = surplus->number - 1;
    }
}

static int64_t no_more_than_usual(const bs_binlog *binlog, int64_t size)
{
    return size < binlog->file_size ? size : binlog->file_size;
}

/* The smallest file that is of any use: one that takes the deletes that are owed, or at least some of them. */
static int64_t least_size(const bs_binlog *binlog)
{
    int64_t owed = (int64_t)binlog->owed * BS_ENTRY_SHORT + BS_ENTRY_HEADER + 2 * BS_ENTRY_SHORT;
    return no_more_than_usual(binlog, (owed + BLOCK - 1) / BLOCK * BLOCK);
}

int bs_room_first(bs_binlog *binlog)
{
    bs_spare first = {.fd = 0};
    if (binlog->spare_count > 0)
        return 0;
    /* On a disk that is full the jobs that are there can still be finished in a smaller file. */
    int64_t sizes[] = {binlog->file_size, least_size(binlog), no_more_than_usual(binlog, BLOCK)};
    binlog->last_number++;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bs_spares_make(binlog->spares, binlog->last_number, sizes[i]);
        (void)bs_spares_take(binlog->spares, true, &first); /* one was asked for, so one comes */
        if (first.fd >= 0) {
            bs_room_add(binlog, first);
            return 0;
        }
    }
    return first.fd;
}
