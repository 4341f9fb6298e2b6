/* Converts a binlog file to columns: the valid entries and the times that can be derived. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "columns/columns.h"
#include "base/clock.h"
#include "binlog_files/entry_index.h"
#include "columns/put.h"
#include "binlog_files/scan.h"

enum { POSITION_BYTES = 8 };

static const bc_word kinds[] = {{"short", 5}, {"full", 4}};
static const bc_word states[] = {{"deleted", 7}, {"ready", 5}, {"reserved", 8}, {"buried", 6}, {"delayed", 7}};
static const bc_word ends[BS_ENDS] = {{"deleted", 7}, {"truncated", 9},      {"moved", 5},
                                      {"expired", 7}, {"dead-lettered", 13}, {"discarded", 9}};
static const bc_word certainties[] = {{"exact", 5}, {"derived", 7}, {"bounded", 7}};
enum { NO_CHECKSUM, RIGHT, FOREIGN };
static const bc_word checksums[] = {{"none", 4}, {"right", 5}, {"foreign", 7}};

struct bc_entries {
    bs_scan scan;
    bs_index index;
    int64_t from;
    int64_t to;
    int64_t log_time;     /* the latest known time, wall */
    int64_t next_written_at; /* offset of the next entry whose time of writing is certain; -1: not searched yet */
    int64_t next_written;    /* that time, wall */
    int64_t written;         /* certain time of writing of the latest such entry so far, wall; -1: none */
    bool waiting;            /* scan.entry is read and not yet in a batch */
};

static bool find_job(void *context, uint64_t id, bool last, bs_entry *entry)
{
    bc_entries *entries = context;
    bs_spot spot;
    int error = 0;
    if (!bs_index_get(&entries->index, id, &spot))
        return false;
    const uint64_t offset = last && spot.last_short ? spot.last_short : spot.full;
    return bs_scan_check(&entries->scan, offset, entry, &error) > 0 && !error;
}

/* --- files --- */

bc_entries *bc_entries_new(void)
{
    bc_entries *entries = calloc(1, sizeof *entries);
    if (entries)
        entries->scan.fd = -1;
    return entries;
}

void bc_entries_free(bc_entries *entries)
{
    if (!entries)
        return;
    bs_index_free(&entries->index);
    free(entries);
}

int bc_entries_open(bc_entries *entries, char *data, size_t length, uint32_t number, int64_t from, int64_t to)
{
    bs_index_free(&entries->index);
    *entries = (bc_entries){.from = from, .to = to, .next_written_at = -1, .written = number == 1 ? 0 : -1};
    bs_index_init(&entries->index, POSITION_BYTES);
    entries->scan.find_job = find_job;
    entries->scan.context = entries;
    return bs_scan_bytes(&entries->scan, data, length, number);
}

bc_fault bc_entries_fault(const bc_entries *entries)
{
    const bs_scan *scan = &entries->scan;
    return (bc_fault){
        .at = (int64_t)scan->at, .next = (int64_t)scan->next, .torn = scan->torn, .cut = scan->cut, .why = scan->fault};
}

int64_t bc_entries_end(const bc_entries *entries)
{
    return (int64_t)entries->scan.end;
}

int32_t bc_entries_version(const bc_entries *entries)
{
    return entries->scan.version;
}

void bc_entries_skip(bc_entries *entries)
{
    bs_scan_skip(&entries->scan);
}

/* --- times --- */

/* Returns the time of the event, recorded or derived. C beanstalkd keeps old deadlines and records no event times, so
 * only entries with a current deadline and puts have one. */
static bc_certainty time_of(const bs_entry *entry, int64_t *time)
{
    *time = bs_entry_event_at(entry);
    if (*time >= 0)
        return entry->sound ? BC_EXACT : BC_DERIVED;
    *time = entry->created_at;
    return entry->name_length > 0 && entry->state == BS_READY && !bs_entry_has_counted(entry) ? BC_DERIVED : BC_BOUNDED;
}

/* Returns the time of writing if it is certain after an entry written at `written`, else -1. A copy has the time of the
 * copied event and may look like a put. A job created after an earlier write was put after it; before binlog.1 there
 * are no copies. */
static int64_t written_at(const bs_entry *entry, int64_t written)
{
    if (entry->name_length == 0)
        return entry->sound || entry->state == BS_DELAYED ? bs_entry_event_at(entry) : -1;
    const bool is_put = !bs_entry_has_counted(entry) && (entry->state == BS_READY || entry->state == BS_DELAYED);
    return is_put && written >= 0 && entry->created_at > written ? entry->created_at : -1;
}

/* Returns the certain time of writing of a later entry; false if this file has none. */
static bool time_after(bc_entries *entries, int64_t *time)
{
    if (entries->next_written_at <= (int64_t)entries->scan.at) {
        bs_scan ahead = entries->scan; /* the caller owns the window */
        entries->next_written_at = INT64_MAX;
        for (int scanned; entries->next_written_at == INT64_MAX && (scanned = bs_scan_next(&ahead)) != BS_SCAN_END;) {
            if (scanned == BS_SCAN_FAULT)
                bs_scan_skip(&ahead);
            else if (scanned < 0)
                break;
            else if ((entries->next_written = written_at(&ahead.entry, entries->written)) >= 0)
                entries->next_written_at = (int64_t)ahead.at;
        }
    }
    *time = entries->next_written;
    return entries->next_written_at != INT64_MAX;
}

/* --- rows --- */

/* Returns whether a full entry is certainly a copy made by compaction, derived in part from the job's earlier entries.
 * A copy of a job without events looks like its put, except that it is the second entry of its id. */
static bool is_copy(const bs_entry *entry, bool is_indexed, bc_certainty certainty, int64_t time)
{
    if (entry->name_length == 0)
        return false;
    bool other_state = entry->state != BS_READY && entry->state != BS_DELAYED;
    return is_indexed || other_state || bs_entry_has_counted(entry) ||
           (certainty == BC_EXACT && time != entry->created_at);
}

static void put_times(bc_entries *entries, bc_batch *batch, bc_certainty certainty, int64_t time)
{
    const bs_entry *entry = &entries->scan.entry;
    bc_put_long(batch, BC_CREATED_AT, entry->created_at / BS_MICROSECOND);
    bc_put_long(batch, BC_CREATED_NS, entry->created_at);
    const bool has_deadline = bs_entry_has_deadline(entry);
    bc_put_some_long(batch, BC_DEADLINE_AT, has_deadline, entry->at / BS_MICROSECOND);
    bc_put_some_long(batch, BC_DEADLINE_NS, has_deadline, entry->at);
    /* C beanstalkd's old deadline shows when the job was last reserved or touched. */
    const bool has_old = !has_deadline && !entry->sound && entry->at > 0;
    bc_put_some_long(batch, BC_OLD_DEADLINE_NS, has_old, entry->at);
    const int64_t reserved_at = bs_entry_reserved_at(entry);
    bc_put_some_long(batch, BC_RESERVED_AT, reserved_at >= 0, reserved_at / BS_MICROSECOND);
    bc_put_some_long(batch, BC_RESERVED_NS, reserved_at >= 0, reserved_at);
    int64_t until = 0;
    bool has_until = certainty == BC_BOUNDED && batch->columns[BC_EVENT_UNTIL].values && time_after(entries, &until);
    if (certainty == BC_BOUNDED && entries->log_time > time)
        time = entries->log_time;
    bc_put_long(batch, BC_EVENT_TIME, time / BS_MICROSECOND);
    bc_put_long(batch, BC_EVENT_NS, time);
    bc_put_word(batch, BC_EVENT_KIND, &certainties[certainty]);
    bc_put_some_long(batch, BC_EVENT_UNTIL, has_until, (until > time ? until : time) / BS_MICROSECOND);
}

static void put_entry(bc_entries *entries, bc_batch *batch, bool is_indexed, bc_certainty certainty, int64_t time)
{
    const bs_entry *entry = &entries->scan.entry;
    uint32_t body_size = entry->body_size > 2 ? entry->body_size - 2 : 0;
    bc_put_long(batch, BC_OFFSET, (int64_t)entries->scan.at);
    bc_put_long(batch, BC_SIZE, (int64_t)entry->size);
    bc_put_word(batch, BC_KIND, &kinds[entry->name_length > 0]);
    bc_put_long(batch, BC_ID, (int64_t)entry->id);
    bc_put_name(batch, BC_TUBE, entry->name, entry->name_length);
    bc_put_long(batch, BC_PRIORITY, entry->pri);
    if (batch->columns[BC_DELAY].values)
        bc_put_long(batch, BC_DELAY, entry->delay / BS_SECOND);
    if (batch->columns[BC_TTR].values)
        bc_put_long(batch, BC_TTR, entry->ttr / BS_SECOND);
    bc_put_int(batch, BC_BODY_SIZE, (int32_t)body_size);
    put_times(entries, batch, certainty, time);
    bc_put_word(batch, BC_STATE, &states[entry->state]);
    bc_put_long(batch, BC_RESERVES, entry->reserves);
    bc_put_long(batch, BC_TIMEOUTS, entry->timeouts);
    bc_put_long(batch, BC_RELEASES, entry->releases);
    bc_put_long(batch, BC_BURIES, entry->buries);
    bc_put_long(batch, BC_KICKS, entry->kicks);
    bc_put_word(batch, BC_CHECKSUM, &checksums[entry->sound ? RIGHT : entry->marked ? FOREIGN : NO_CHECKSUM]);
    bc_put_word(batch, BC_ENDED, entry->state == BS_INVALID ? &ends[entry->ended] : NULL);
    bc_put_flag(batch, BC_IS_COPY, is_copy(entry, is_indexed, certainty, time));
    bc_put_text(batch, BC_BODY, entry->body, body_size);
    batch->rows++;
}

/* Adds the entry that was read last. An entry of no job has no row, because it would look like the end of a live job.
 * Returns 0 or -ENOMEM. */
static int add_entry(bc_entries *entries, bc_batch *batch)
{
    const bs_entry *entry = &entries->scan.entry;
    bs_spot spot = {0};
    bool is_indexed = bs_index_get(&entries->index, entry->id, &spot);
    int64_t time;
    bc_certainty certainty = time_of(entry, &time);
    if ((int64_t)entries->scan.at >= entries->from && !bs_entry_has_no_job(entry))
        put_entry(entries, batch, is_indexed, certainty, time);
    const int64_t written = written_at(entry, entries->written);
    if (written > entries->written)
        entries->written = written;
    if (time > entries->log_time) /* a bounded time is that of the put, which was before */
        entries->log_time = time;
    return bs_index_apply(&entries->index, &spot, entry, entries->scan.at, BS_INDEX_MANY);
}

int bc_entries_read(bc_entries *entries, bc_batch *batch)
{
    for (;;) {
        if (!entries->waiting) {
            if ((int64_t)entries->scan.offset >= entries->to)
                return BC_END;
            int scanned = bs_scan_next(&entries->scan);
            if (scanned < 0)
                return scanned;
            if (scanned != BS_SCAN_ENTRY)
                return scanned == BS_SCAN_END ? BC_END : BC_FAULT;
        }
        const bs_entry *entry = &entries->scan.entry;
        const bool wanted = (int64_t)entries->scan.at >= entries->from;
        entries->waiting =
            wanted && (batch->rows == batch->capacity || !bc_has_space(batch, BC_TUBE, entry->name_length) ||
                       !bc_has_space(batch, BC_BODY, entry->body_size));
        if (entries->waiting)
            return batch->rows > 0 ? BC_MORE : BC_NO_SPACE;
        int error = add_entry(entries, batch);
        if (error)
            return error;
    }
}
