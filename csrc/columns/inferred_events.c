/* Infers the events of a job from its binlog entries.
 *
 * An entry records the job's state after an event, and its counters. The difference to the previous entry is the event.
 * Larger differences are events without entries: C beanstalkd and a server without a history write none for reserves
 * and timeouts. They are added in a possible order between the known times. Returns and touches are not counted, so
 * only those are inferred that other events imply. Names and rules are those of csrc/history/timeline.c.
 *
 * Where a server records no reserves, a reserve is only bounded: its deadline may be that of a touch. There a reserved
 * job may have returned, and a ready one may have been reserved, without an entry.
 */
#include <errno.h>
#include <stdbool.h>

#include "jobs/job.h"
#include "base/clock.h"
#include "columns/job_histories.h"

enum { RESERVES, TIMEOUTS, RELEASES, BURIES, KICKS, COUNTERS };
enum { NOTHING = -1 };

#define JITTER BS_MILLISECOND /* between two readings of the same deadline */

typedef struct {
    int64_t created_at;
    int64_t delay; /* seconds */
    int64_t ttr;
    int64_t at;
    int64_t until;
    int64_t reserved_at;
    int64_t deadline;
    int64_t counters[COUNTERS];
    int64_t priority;
    int64_t data_end;
    int state;
    bc_certainty certainty;
    bool sound;
    bool has_reserves; /* the server records reserves */
    int ended;
    bool full;
} job_entry;

/* The history being built, and the values of its last entry. */
typedef struct {
    bc_histories *histories;
    int64_t counters[COUNTERS];
    int64_t deadline; /* states Delayed and Reserved; -1: unknown */
} timeline_builder;

static int64_t upper(int64_t pair)
{
    return (int64_t)((uint64_t)pair >> 32);
}

static int64_t lower(int64_t pair)
{
    return (int64_t)(uint32_t)pair;
}

static job_entry entry_of(const bc_history_entries *entries, int64_t row)
{
    const int64_t flags = entries->flags[row];
    const bc_certainty certainty = (bc_certainty)(flags / BC_FLAGS_CERTAINTY & 3);
    return (job_entry){
        .created_at = entries->created_at[row],
        .delay = entries->delay[row],
        .ttr = entries->ttr[row],
        .at = entries->at[row],
        .until = certainty == BC_BOUNDED ? entries->more[row] : -1,
        .reserved_at = certainty == BC_BOUNDED ? -1 : entries->more[row],
        .deadline = entries->deadline[row],
        .counters = {upper(entries->reserves_timeouts[row]), lower(entries->reserves_timeouts[row]),
                     upper(entries->releases_buries[row]), lower(entries->releases_buries[row]),
                     upper(entries->kicks_priority[row])},
        .priority = lower(entries->kicks_priority[row]),
        .data_end = entries->data_end[row],
        .state = (int)(flags & BC_FLAGS_STATE),
        .certainty = certainty,
        .sound = (flags & BC_FLAGS_SOUND) != 0,
        .has_reserves = (flags & BC_FLAGS_SOUND) != 0 && (flags & BC_FLAGS_RESERVES) != 0,
        .ended = (int)(flags / BC_FLAGS_ENDED & 7),
        .full = (flags & BC_FLAGS_FULL) != 0,
    };
}

static bool has_counted(const job_entry *entry)
{
    for (int i = 0; i < COUNTERS; i++)
        if (entry->counters[i])
            return true;
    return false;
}

/* --- events --------------------------------------------------------------------------------------------- */

static void add_event(timeline_builder *builder, int kind, bc_certainty certainty, int64_t at, int64_t until)
{
    bc_histories_add_event(builder->histories, (bc_event){kind, certainty, at, until, -1, -1});
    builder->deadline = -1;
}

/* Adds the end of the delay if the job left the state later, except by a kick. The job left it between `from` and `to`;
 * with `certainly`, only a certain end is added. */
static void add_due(timeline_builder *builder, int64_t from, int64_t to, bool certainly)
{
    const int64_t deadline = builder->deadline;
    if (builder->histories->state != BS_DELAYED || deadline < 0)
        return;
    if (from > deadline)
        add_event(builder, BC_DUE, BC_DERIVED, deadline, -1);
    else if (!certainly && (to < 0 || to > deadline))
        add_event(builder, BC_DUE, BC_BOUNDED, deadline, to);
}

static void add_inferred(timeline_builder *builder, int kind, int64_t until)
{
    if (kind == BC_RESERVE)
        add_due(builder, builder->histories->since, until, false);
    add_event(builder, kind, BC_BOUNDED, builder->histories->since, until);
}

static const int counters_of[BC_EVENTS] = {
    [BC_PUT] = NOTHING,         [BC_RESERVE] = RESERVES, [BC_TOUCH] = NOTHING,    [BC_RELEASE] = RELEASES,
    [BC_TIMEOUT] = TIMEOUTS,    [BC_RETURN] = NOTHING,   [BC_DUE] = NOTHING,      [BC_BURY] = BURIES,
    [BC_KICK] = KICKS,          [BC_DELETE] = NOTHING,   [BC_TRUNCATE] = NOTHING, [BC_EXPIRE] = NOTHING,
    [BC_DEAD_LETTER] = NOTHING, [BC_DISCARD] = NOTHING,  [BC_MOVE] = NOTHING,
};

/* Takes a missing event that ends a reserve; NOTHING if none is left. */
static int take_ending(int64_t missing[COUNTERS])
{
    static const int kinds[] = {BC_TIMEOUT, BC_RELEASE, BC_BURY};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (missing[counters_of[kinds[i]]] > 0) {
            missing[counters_of[kinds[i]]]--;
            return kinds[i];
        }
    }
    return NOTHING;
}

/* Returns the next of the missing events; NOTHING if none is left. */
static int next_inferred(const timeline_builder *builder, int64_t missing[COUNTERS], bool stays_reserved)
{
    const int state = builder->histories->state;
    if (state == BS_RESERVED) {
        const int ending = take_ending(missing);
        if (ending != NOTHING)
            return ending;
        return missing[RESERVES] > 0 || missing[KICKS] > 0 || !stays_reserved ? BC_RETURN : NOTHING;
    }
    if (missing[KICKS] > 0 && (state == BS_BURIED || missing[BURIES] == 0)) {
        missing[KICKS]--;
        return BC_KICK;
    }
    if (missing[RESERVES] > 0) {
        missing[RESERVES]--;
        return BC_RESERVE;
    }
    return take_ending(missing); /* entries are missing or wrong */
}

static void add_all_inferred(timeline_builder *builder, int64_t missing[COUNTERS], int64_t until, bool stays_reserved)
{
    for (int kind; (kind = next_inferred(builder, missing, stays_reserved)) != NOTHING;)
        add_inferred(builder, kind, until);
}

/* --- from entries to events ----------------------------------------------------------------------------- */

/* Returns the event for which an entry was written; for a copy, the event that set the state, if it is new. */
static int kind_of(const job_entry *entry, const int64_t growth[COUNTERS])
{
    switch (entry->state) {
    case BS_INVALID:
        return BC_DELETE + entry->ended;
    case BS_RESERVED:
        return growth[RESERVES] ? BC_RESERVE : entry->full ? NOTHING : BC_TOUCH;
    case BS_BURIED:
        return entry->full && !growth[BURIES] ? NOTHING : BC_BURY;
    case BS_DELAYED:
        return entry->full && !growth[RELEASES] ? NOTHING : BC_RELEASE;
    default:
        break;
    }
    if (growth[KICKS])
        return BC_KICK;
    if (growth[RELEASES])
        return BC_RELEASE;
    if (growth[TIMEOUTS])
        return BC_TIMEOUT;
    return entry->full ? NOTHING : BC_RETURN;
}

static bool ends_reserve(int kind)
{
    return kind == BC_RELEASE || kind == BC_BURY || kind == BC_TOUCH || kind == BC_TIMEOUT || kind == BC_RETURN;
}

static void count_growth(timeline_builder *builder, const job_entry *entry, int64_t growth[COUNTERS])
{
    for (int i = 0; i < COUNTERS; i++) {
        const int64_t grown = entry->counters[i] - builder->counters[i];
        growth[i] = grown < 0 ? 0 : grown > BC_INFERRED_MAX ? BC_INFERRED_MAX : grown;
        builder->counters[i] = entry->counters[i];
    }
}

/* Returns the time of the last missing reserve if the entry or an old deadline shows it. */
static int64_t last_reserve(const timeline_builder *builder, const job_entry *entry)
{
    if (entry->sound)
        return entry->reserved_at;
    const bool has_old = entry->state != BS_RESERVED && entry->state != BS_DELAYED && entry->deadline >= 0;
    const int64_t at = entry->deadline - entry->ttr * BS_SECOND;
    const bool fits = at >= builder->histories->since && (entry->until < 0 || at <= entry->until);
    return has_old && fits ? at : -1;
}

/* Returns the earliest time of an entry's event. The event of a copy was before the copy. */
static int64_t earliest(const timeline_builder *builder, const job_entry *entry)
{
    const int64_t since = builder->histories->since;
    return entry->certainty != BC_BOUNDED ? entry->at : entry->full || entry->at < since ? since : entry->at;
}

/* Adds the last missing reserve. It was at `at`, or before if `at` follows from an old deadline, which a touch may have
 * set. */
static void add_last_reserve(timeline_builder *builder, const job_entry *entry, int64_t at)
{
    add_due(builder, at, at, true);
    if (entry->sound)
        add_event(builder, BC_RESERVE, BC_EXACT, at, -1);
    else
        add_event(builder, BC_RESERVE, BC_BOUNDED, builder->histories->since, at);
    builder->deadline = at + entry->ttr * BS_SECOND;
}

/* Adds the missing events before the entry's event. */
static void add_events_before(timeline_builder *builder, const job_entry *entry, int kind, int64_t missing[COUNTERS])
{
    const int64_t latest = entry->certainty == BC_BOUNDED ? entry->until : entry->at;
    const bool stays = kind == NOTHING ? entry->state == BS_RESERVED : kind != BC_RESERVE && kind != BC_KICK;
    const int64_t reserved_at = missing[RESERVES] > 0 ? last_reserve(builder, entry) : -1;
    int ending = NOTHING;
    if (reserved_at >= 0) {
        const int64_t held = missing[RESERVES] + (builder->histories->state == BS_RESERVED);
        const int64_t ended = missing[TIMEOUTS] + missing[RELEASES] + missing[BURIES];
        if (!entry->sound && !ends_reserve(kind) && ended >= held)
            ending = take_ending(missing);
        const bool is_timeout = ending == BC_TIMEOUT && missing[RELEASES] == 0 && missing[BURIES] == 0;
        missing[RESERVES]--;
        add_all_inferred(builder, missing, reserved_at, false);
        add_last_reserve(builder, entry, reserved_at);
        if (ending != NOTHING)
            add_event(builder, ending, BC_BOUNDED, is_timeout ? builder->deadline : reserved_at, latest);
        else if (!entry->has_reserves)
            bc_histories_set_states(builder->histories, BC_EITHER);
    }
    add_all_inferred(builder, missing, latest, stays);
}

/* A copy without new counts can show that a delay ended, or that the job was touched. */
static void add_from_copy(timeline_builder *builder, const job_entry *entry)
{
    if (builder->histories->state == BS_DELAYED && entry->state == BS_READY && builder->deadline >= 0)
        add_event(builder, BC_DUE, BC_DERIVED, builder->deadline, -1);
    if (builder->histories->state != BS_RESERVED || entry->state != BS_RESERVED)
        return;
    if (builder->deadline >= 0 && entry->deadline > builder->deadline + JITTER)
        add_event(builder, BC_TOUCH, BC_DERIVED, entry->at, -1);
    builder->deadline = entry->deadline;
}

/* Takes the event by which a job came back when a policy ended it; NOTHING if that is not certain.
 * Timeouts may have no entry, and expired jobs may have been ready, so the reserve that ended must be known: it is in
 * this entry alone, or in earlier ones and the policy acts only on returns. */
static int take_return_before_end(const timeline_builder *builder, const job_entry *entry, int64_t growth[COUNTERS])
{
    const int expired = BC_EXPIRE - BC_DELETE;
    const bool includes_reserve = growth[RESERVES] > 0 && entry->reserved_at >= 0;
    const bool was_reserved = builder->histories->state == BS_RESERVED;
    const bool is_last = growth[RESERVES] == 0 && was_reserved && entry->ended != expired;
    if (entry->ended < expired || !(includes_reserve ? growth[RESERVES] == 1 && !was_reserved : is_last))
        return NOTHING;
    const int counter = growth[RELEASES] ? RELEASES : TIMEOUTS;
    if (growth[counter] == 0)
        return includes_reserve ? BC_RETURN : NOTHING;
    growth[counter]--;
    return counter == RELEASES ? BC_RELEASE : BC_TIMEOUT;
}

static void add_entry(timeline_builder *builder, const job_entry *entry)
{
    int64_t growth[COUNTERS];
    count_growth(builder, entry, growth);
    const int kind = kind_of(entry, growth);
    const int counter = kind == NOTHING ? NOTHING : counters_of[kind];
    if (counter != NOTHING && growth[counter] > 0)
        growth[counter]--;
    const int came_back = take_return_before_end(builder, entry, growth);
    add_events_before(builder, entry, kind, growth);
    if (came_back != NOTHING) {
        const bool is_release = came_back == BC_RELEASE;
        bc_histories_add_event(builder->histories, (bc_event){came_back, BC_EXACT, entry->at, -1,
                                                              is_release ? entry->priority : -1, is_release ? 0 : -1});
    }
    if (kind == NOTHING) {
        add_from_copy(builder, entry);
        return;
    }
    const int64_t at = earliest(builder, entry);
    if (kind != BC_KICK)
        add_due(builder, at, entry->certainty == BC_BOUNDED ? entry->until : at, kind != BC_RESERVE);
    if (builder->histories->state == BS_RESERVED && (kind == BC_BURY || kind == BC_RELEASE))
        bc_histories_set_states(builder->histories, BC_ONLY_RESERVED);
    const bool has_priority = kind == BC_RELEASE || kind == BC_BURY;
    const bool is_derived = entry->full && entry->certainty == BC_EXACT && kind == BC_RESERVE;
    bc_event event = {
        .kind = kind,
        .certainty = is_derived ? BC_DERIVED : entry->certainty,
        .at = at,
        .until = entry->until,
        .priority = has_priority ? entry->priority : -1,
        .delay = kind == BC_RELEASE ? entry->delay : -1,
    };
    if (kind == BC_RESERVE && !entry->has_reserves) {
        event.certainty = BC_BOUNDED;
        event.at = builder->histories->since;
        event.until = at;
    }
    bc_histories_add_event(builder->histories, event);
    if (kind == BC_RESERVE && !entry->has_reserves)
        bc_histories_set_states(builder->histories, BC_EITHER);
    builder->deadline = entry->state == BS_DELAYED || entry->state == BS_RESERVED ? entry->deadline : -1;
}

/* --- histories ---------------------------------------------------------------------------------------------- */

/* Begins with the first known entry. It shows the put if nothing else had happened; every entry has the time of the
 * put. */
static void begin(timeline_builder *builder, const job_entry *entry, int64_t row, int64_t last_row)
{
    bc_history_columns *columns = &builder->histories->columns;
    const bool is_put = entry->full && !has_counted(entry);
    const bool has_delay = entry->counters[RELEASES] == 0;
    for (int i = 0; i < COUNTERS; i++)
        builder->counters[i] = 0;
    bc_histories_begin(builder->histories, row);
    if (builder->histories->failed)
        return;
    const int64_t history = bc_histories_current(builder->histories);
    columns->complete[history] = is_put;
    columns->last_row[history] = last_row;
    const bc_event put = {
        .kind = BC_PUT,
        .certainty = entry->sound ? BC_EXACT : BC_DERIVED,
        .at = entry->created_at,
        .until = -1,
        .priority = is_put ? entry->priority : -1,
        .delay = has_delay ? entry->delay : -1,
    };
    bc_histories_add_event(builder->histories, put);
    if (!is_put)
        bc_histories_set_states(builder->histories, BC_ANY);
    builder->deadline = builder->histories->state == BS_DELAYED ? entry->created_at + entry->delay * BS_SECOND : -1;
    if (is_put && entry->state == BS_DELAYED)
        builder->deadline = entry->deadline;
}

/* Adds the end of a delay that elapsed before the end of the data, and widens the last state where a reserve or return
 * would have no entry. */
static void finish(timeline_builder *builder, const job_entry *last)
{
    const bool has_passed = builder->deadline >= 0 && builder->deadline <= last->data_end;
    if (builder->histories->state == BS_DELAYED && has_passed)
        add_event(builder, BC_DUE, BC_DERIVED, builder->deadline, -1);
    const int state = builder->histories->state;
    /* A reserved job whose TTR has ended without an entry became ready at a restart. */
    const bool may_differ = !last->has_reserves || (state == BS_RESERVED && has_passed);
    if (may_differ && (state == BS_READY || state == BS_RESERVED))
        bc_histories_set_states(builder->histories, BC_EITHER);
    bc_histories_finish(builder->histories);
}

/* Returns the row behind the history that begins at a row. */
static int64_t end_of_history(const bc_history_entries *entries, int64_t row)
{
    const int64_t first = row++;
    while (row < entries->rows && entries->id[row] == entries->id[first] &&
           entries->created_at[row] == entries->created_at[first] && entries->host[row] == entries->host[first])
        row++;
    return row;
}

static void add_history(timeline_builder *builder, const bc_history_entries *entries, int64_t from, int64_t to)
{
    for (int64_t row = from; row < to && !builder->histories->failed; row++) {
        const job_entry entry = entry_of(entries, row);
        if (row == from)
            begin(builder, &entry, row, to - 1);
        if (builder->histories->failed)
            return;
        add_entry(builder, &entry);
        if (entry.full)
            builder->histories->columns.full_row[bc_histories_current(builder->histories)] = row;
        if (row == to - 1)
            finish(builder, &entry);
    }
}

int64_t bc_histories_of_entries(bc_histories *histories, const bc_history_entries *entries, int last)
{
    timeline_builder builder = {.histories = histories};
    int64_t row = 0;
    bc_histories_clear(histories);
    while (row < entries->rows) {
        const int64_t end = end_of_history(entries, row);
        if (end == entries->rows && !last)
            break;
        add_history(&builder, entries, row, end);
        if (histories->failed)
            return -ENOMEM;
        row = end;
    }
    return row;
}
