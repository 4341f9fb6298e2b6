#include "history/job_history.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* --- faults ----------------------------------------------------------------------------------------------- */

int bs_history_add_fault(bs_history *history, uint32_t folder, uint32_t file, uint64_t offset, const char *format, ...)
{
    if (history->faults_taken == history->fault_count)
        history->faults_taken = history->fault_count = 0;
    bs_history_fault *faults =
        bs_grow(history->faults, history->fault_count, &history->fault_capacity, sizeof *faults);
    if (!faults)
        return -ENOMEM;
    history->faults = faults;
    bs_history_fault *fault = &history->faults[history->fault_count++];
    *fault = (bs_history_fault){.folder = folder, .position = {file, offset}};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(fault->what, sizeof fault->what, format, arguments);
    va_end(arguments);
    return 0;
}

const bs_history_fault *bs_history_next_fault(bs_history *history)
{
    return history->faults_taken < history->fault_count ? &history->faults[history->faults_taken++] : NULL;
}

/* --- full entries ----------------------------------------------------------------------------------------- */

/* Returns whether this is still the entry that was read before. */
static bool is_same_entry(const bs_entry *entry, uint64_t id, uint32_t number)
{
    bool of_this_file = entry->marked && entry->tag == (uint16_t)number;
    return entry->id == id && entry->name_length > 0 && (entry->sound || !of_this_file);
}

int bs_history_find_full(bs_history *history, uint64_t id, const bs_spot *spot, bs_entry *entry, bs_scan **scan)
{
    if (spot->full == BS_HISTORY_NO_POSITION)
        return -ENOENT;
    const uint32_t index = (uint32_t)(spot->full >> BS_HISTORY_OFFSET_BITS);
    const uint64_t offset = spot->full & BS_HISTORY_OFFSET_MASK;
    const bs_history_file *file = &history->files[index];
    bs_follower *follower = history->followers[file->folder];
    const bool current = follower->fd >= 0 && follower->file == index;
    bs_scan *here = &follower->scan;
    if (current && offset >= here->window_at && offset < here->window_at + here->window_length) {
        size_t before = (size_t)(offset - here->window_at);
        *scan = here;
        if (bs_entry_decode(here->window + before, here->window_length - before, here->version, entry) > 0)
            return is_same_entry(entry, id, file->number) ? 0 : -ESTALE;
    }
    const uint64_t length = current && !follower->complete ? here->length : UINT64_MAX;
    int error;
    *scan = bs_full_entries_scan(&history->fulls, follower->dir_fd, file->folder, file->number, length, &error);
    if (!*scan)
        return error;
    const int64_t size = bs_scan_check(*scan, offset, entry, &error);
    if (error)
        return error;
    return size > 0 && is_same_entry(entry, id, file->number) ? 0 : -ESTALE;
}

/* Finds the full entry of the current entry's job. *retry_error: 0, or an error that may be temporary. */
static bool find_previous_full(bs_history *history, bs_follower *follower, const bs_spot *spot, bs_entry *full,
                               int *retry_error)
{
    bs_scan *scan;
    int error = bs_history_find_full(history, follower->scan.entry.id, spot, full, &scan);
    bool lasting = error == 0 || error == -ENOENT || error == -ESTALE;
    *retry_error = !lasting && bs_follower_retries(follower, follower->scan.at, error) ? error : 0;
    return error == 0;
}

bool bs_history_find_job(void *context, uint64_t id, bool last, bs_entry *entry)
{
    bs_history *history = context;
    bs_spot spot;
    bs_scan *scan;
    if (!bs_index_get(&history->index, id, &spot))
        return false;
    if (last && spot.last_short) {
        entry->crc = bs_timeline_of(&spot)->crc;
        return true;
    }
    if (bs_history_find_full(history, id, &spot, entry, &scan) != 0)
        return false;
    /* Otherwise another job has the same id. */
    return last || entry->created_at == history->reading->scan.entry.created_at;
}

/* --- adding and removing jobs ------------------------------------------------------------------------------------ */

static void release_full_entry(bs_history *history, const bs_spot *spot)
{
    if (spot->full == BS_HISTORY_NO_POSITION)
        return;
    uint32_t index = (uint32_t)(spot->full >> BS_HISTORY_OFFSET_BITS);
    history->files[index].jobs--;
    bs_history_release_file(history, index);
}

void bs_history_forget(bs_history *history, uint64_t id, const bs_spot *spot)
{
    bs_index_remove(&history->index, id);
    free(bs_timeline_of(spot));
    release_full_entry(history, spot);
}

bs_timeline *bs_history_timeline_of_put(const bs_spot *spot, const bs_entry *full, const bs_entry *entry)
{
    bs_timeline *timeline = bs_timeline_new(entry, full ? full : entry);
    if (!timeline)
        return NULL;
    memset(timeline->counters, 0, sizeof timeline->counters);
    timeline->state = BS_READY;
    timeline->deadline = 0;
    if (spot->body_size == BS_DELAYED && full) {
        timeline->state = BS_DELAYED;
        timeline->deadline = full->at;
    }
    return timeline;
}

static bool only_put(const bs_entry *entry)
{
    return !bs_entry_has_counted(entry) && (entry->state == BS_READY || entry->state == BS_DELAYED);
}

/* Adds a new job at the position and tube in `spot`. Returns 0 or -ENOMEM. */
static int begin_job(bs_history *history, const bs_entry *entry, bs_spot *spot)
{
    bs_timeline *timeline = NULL;
    if (!only_put(entry) && !(timeline = bs_timeline_new(entry, entry)))
        return -ENOMEM;
    spot->last_short = (uintptr_t)timeline;
    spot->body_size = entry->state;
    int error = bs_index_put(&history->index, entry->id, spot);
    if (error)
        free(timeline);
    return error;
}

/* Returns whether the checkpoint contains the entries before it. */
static bool is_restored(const bs_spot *spot)
{
    return spot->last_short && bs_timeline_of(spot)->restored;
}

/* Returns whether the entry belongs to a later job with the same id. `before` is the previous full entry, or NULL. */
static bool is_other_job(const bs_entry *entry, const bs_spot *spot, const bs_entry *before)
{
    if (spot->last_short)
        return bs_timeline_of(spot)->created_at != entry->created_at;
    return before && before->created_at != entry->created_at;
}

/* Applies a full entry of a known job. Changes since its last entry become events, unless the checkpoint has them.
 * Returns 0 or a negative errno. */
static int apply_to_known_job(bs_history *history, bs_follower *follower, const bs_entry *entry, const bs_spot *old,
                              bs_spot *spot)
{
    const bs_binlog_position position = {follower->number, follower->scan.at};
    const bool adds_events = !(is_restored(old) && bs_position_before(position, follower->checkpointed));
    bs_entry before;
    int retry_error;
    const bool has_before = find_previous_full(history, follower, old, &before, &retry_error);
    if (retry_error)
        return retry_error;
    if (is_other_job(entry, old, has_before ? &before : NULL)) {
        int error = begin_job(history, entry, spot);
        if (error)
            return error;
        free(bs_timeline_of(old));
        return 0;
    }
    bs_timeline *timeline = bs_timeline_of(old);
    const bool differs = has_before && (before.pri != entry->pri || before.delay != entry->delay);
    const bool is_due = old->body_size == BS_DELAYED && entry->state == BS_READY;
    if (!timeline && (differs || is_due || !only_put(entry)) &&
        !(timeline = bs_history_timeline_of_put(old, has_before ? &before : NULL, entry)))
        return -ENOMEM;
    int error = timeline && adds_events ? bs_timeline_add_copy(&timeline, &history->limits, entry) : 0;
    spot->last_short = (uintptr_t)timeline;
    if (!error)
        error = bs_index_put(&history->index, entry->id, spot); /* does not fail for a job with a timeline */
    if (error && !old->last_short)
        free(timeline);
    return error;
}

static int apply_full(bs_history *history, bs_follower *follower)
{
    const bs_entry entry = follower->scan.entry; /* a copy, because looking elsewhere may move the window */
    const int64_t tube = bs_names_number(&history->names, entry.name, entry.name_length, BS_INDEX_MANY);
    if (tube < 0)
        return (int)tube;
    bs_spot old;
    const uint64_t position = (uint64_t)follower->file << BS_HISTORY_OFFSET_BITS | follower->scan.at;
    bs_spot spot = {.full = position, .tube = (uint32_t)tube, .body_size = entry.state};
    const bool known = bs_index_get(&history->index, entry.id, &old);
    int error = known ? apply_to_known_job(history, follower, &entry, &old, &spot) : begin_job(history, &entry, &spot);
    if (error)
        return error;
    history->files[follower->file].jobs++;
    if (known)
        release_full_entry(history, &old);
    return 0;
}

static int apply_short(bs_history *history, bs_follower *follower, bool is_checkpointed)
{
    const bs_entry *entry = &follower->scan.entry;
    bs_spot spot;
    if (!bs_index_get(&history->index, entry->id, &spot) || (is_checkpointed && is_restored(&spot)))
        return 0;
    bs_entry full;
    int retry_error = 0;
    bs_timeline *timeline = bs_timeline_of(&spot);
    const bool new = !timeline;
    /* Without a release or bury, which set a priority, the second entry implies the put. */
    const bool implies_put = spot.body_size == BS_READY && entry->releases == 0 && entry->buries == 0;
    const bool has_full = new && !implies_put && find_previous_full(history, follower, &spot, &full, &retry_error);
    if (retry_error)
        return retry_error;
    if (new && !(timeline = bs_history_timeline_of_put(&spot, has_full ? &full : NULL, entry)))
        return -ENOMEM;
    int error = bs_timeline_add(&timeline, &history->limits, entry);
    if (!error && (uintptr_t)timeline != spot.last_short) {
        spot.last_short = (uintptr_t)timeline;
        error = bs_index_put(&history->index, entry->id, &spot);
    }
    if (error && new)
        free(timeline);
    return error;
}

/* --- entries ----------------------------------------------------------------------------------------------- */

static int apply_end(bs_history *history, bs_follower *follower, bool is_checkpointed, bool archived)
{
    const bs_scan *scan = &follower->scan;
    bs_spot spot;
    if (bs_entry_has_no_job(&scan->entry))
        return 0;
    if (!bs_index_get(&history->index, scan->entry.id, &spot)) {
        history->stats.orphans += !archived && scan->at != BS_ENTRY_HEADER;
        return 0;
    }
    if (is_checkpointed && is_restored(&spot))
        return 0;
    if (archived) {
        bs_history_forget(history, scan->entry.id, &spot);
        return 0;
    }
    return bs_history_end_job(history, follower, &spot);
}

int bs_history_apply(bs_history *history, bs_follower *follower)
{
    const bs_entry *entry = &follower->scan.entry;
    const bs_binlog_position position = {follower->number, follower->scan.at};
    const bool is_checkpointed = bs_position_before(position, follower->checkpointed);
    if (entry->state == BS_INVALID)
        return apply_end(history, follower, is_checkpointed, !bs_position_before(follower->archived, position));
    if (entry->name_length > 0)
        return apply_full(history, follower);
    return apply_short(history, follower, is_checkpointed);
}

/* --- interface ------------------------------------------------------------------------------------------ */

int bs_history_new(uint64_t most_body, uint32_t most_events, bs_history **created)
{
    if (most_events < 2)
        return -EINVAL;
    bs_history *history = calloc(1, sizeof *history);
    if (!history)
        return -ENOMEM;
    if (most_events > BS_HISTORY_EVENTS_MAX)
        most_events = BS_HISTORY_EVENTS_MAX;
    /* The put is an event, too. */
    history->limits = (bs_timeline_limits){most_events / 2 - 1, most_events - most_events / 2};
    history->most_body = most_body < INT32_MAX / 2 ? (uint32_t)most_body : INT32_MAX / 2;
    bs_index_init(&history->index, sizeof(uint64_t));
    int error = bs_full_entries_init(&history->fulls);
    if (error) {
        bs_history_free(history);
        return error;
    }
    *created = history;
    return 0;
}

static int drop_if_unseen(void *context, uint64_t id, const bs_spot *spot)
{
    if (spot->full == BS_HISTORY_NO_POSITION)
        bs_history_forget(context, id, spot);
    return 0;
}

void bs_history_drop_unseen(bs_history *history)
{
    (void)bs_index_each(&history->index, drop_if_unseen, history);
}

static int free_timeline(void *context, uint64_t id, const bs_spot *spot)
{
    (void)context;
    (void)id;
    free(bs_timeline_of(spot));
    return 0;
}

void bs_history_free_jobs(bs_history *history)
{
    (void)bs_index_each(&history->index, free_timeline, NULL);
    bs_index_free(&history->index);
}

void bs_history_free(bs_history *history)
{
    if (!history)
        return;
    bs_history_free_jobs(history);
    for (uint32_t i = 0; i < history->follower_count; i++)
        bs_follower_free(history->followers[i]);
    bs_full_entries_free(&history->fulls);
    bs_names_free(&history->names);
    free(history->unnumbered_tube.name);
    free(history->unnumbered_tube.topic);
    bs_bytes_free(&history->items);
    bs_bytes_free(&history->checkpoint);
    free(history->files);
    free(history->faults);
    free(history->checkpoints);
    free(history);
}

const char *bs_history_items(const bs_history *history, size_t *length, uint64_t *count)
{
    *length = bs_bytes_length(&history->items);
    *count = history->item_count;
    return *length ? bs_bytes_data(&history->items) : NULL;
}

const bs_history_stats *bs_history_get_stats(bs_history *history)
{
    history->stats.open = history->index.count;
    return &history->stats;
}
