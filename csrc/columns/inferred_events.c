/* What the entries of a job tell of its life.
 *
 * An entry says what its job is after an event, and how often it has been reserved and so on. What differs from the entry
 * before is the event; what differs by more has happened in between and has no entry of its own: C beanstalkd and a
 * server without a history write none of reserves and timeouts. That is put in an order in which it can have happened,
 * between the times that are known. Returns and touches are not counted, so of untold ones only those are known
 * without which the rest makes no sense. The words and rules are those of the archiver's timelines (csrc/history/timeline.c).
 */
#include <errno.h>
#include <stdbool.h>

#include "queue/job.h"
#include "columns/job_histories.h"

enum { RESERVES, TIMEOUTS, RELEASES, BURIES, KICKS, COUNTERS };
enum { NOTHING = -1 };

static const int64_t SECOND = 1000000000;
static const int64_t JITTER = 1000000; /* between two readings of the same deadline */

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
    int state;
    bc_certainty sure;
    bool sound;
    bool truncated;
    bool full;
} entry;

/* The life that is being told, and what its last entry said. */
typedef struct {
    bc_lives *lives;
    int64_t counters[COUNTERS];
    int64_t deadline; /* states Delayed and Reserved; -1: not known */
} teller;

static int64_t upper(int64_t pair)
{
    return (int64_t)((uint64_t)pair >> 32);
}

static int64_t lower(int64_t pair)
{
    return (int64_t)(uint32_t)pair;
}

static entry entry_of(const bc_life_entries *of, int64_t row)
{
    const int64_t said = of->said[row];
    const bc_certainty sure = (bc_certainty)(said / BC_SAID_CERTAINTY & 3);
    return (entry){
        .created_at = of->created_at[row],
        .delay = of->delay[row],
        .ttr = of->ttr[row],
        .at = of->at[row],
        .until = sure == BC_BOUNDED ? of->more[row] : -1,
        .reserved_at = sure == BC_BOUNDED ? -1 : of->more[row],
        .deadline = of->deadline[row],
        .counters = {upper(of->reserves_timeouts[row]), lower(of->reserves_timeouts[row]),
                     upper(of->releases_buries[row]), lower(of->releases_buries[row]), upper(of->kicks_priority[row])},
        .priority = lower(of->kicks_priority[row]),
        .state = (int)(said & BC_SAID_STATE),
        .sure = sure,
        .sound = (said & BC_SAID_SOUND) != 0,
        .truncated = (said & BC_SAID_TRUNCATED) != 0,
        .full = (said & BC_SAID_FULL) != 0,
    };
}

static bool has_counted(const entry *of)
{
    return of->counters[RESERVES] || of->counters[TIMEOUTS] || of->counters[RELEASES] || of->counters[BURIES] ||
           of->counters[KICKS];
}

/* --- events --------------------------------------------------------------------------------------------- */

static void tell(teller *told, int kind, bc_certainty sure, int64_t at, int64_t until)
{
    bc_lives_event(told->lives, (bc_life_event){kind, sure, at, until, -1, -1});
    told->deadline = -1;
}

/* The delay was over if the job left it, but for a kick, behind its end. `from` and `to` are when it left, at the
 * earliest and at the latest; `certainly`: only if there is no doubt. */
static void tell_due(teller *told, int64_t from, int64_t to, bool certainly)
{
    const int64_t deadline = told->deadline;
    if (told->lives->state != BS_DELAYED || deadline < 0)
        return;
    if (from > deadline)
        tell(told, BC_DUE, BC_DERIVED, deadline, -1);
    else if (!certainly && (to < 0 || to > deadline))
        tell(told, BC_DUE, BC_BOUNDED, deadline, to);
}

static void tell_untold(teller *told, int kind, int64_t until)
{
    if (kind == BC_RESERVE)
        tell_due(told, told->lives->since, until, false);
    tell(told, kind, BC_BOUNDED, told->lives->since, until);
}

/* One of those that end a reserve and have a counter; NOTHING if none is left. */
static int take_ending(int64_t untold[COUNTERS])
{
    static const int counters[] = {TIMEOUTS, RELEASES, BURIES};
    static const int kinds[] = {BC_TIMEOUT, BC_RELEASE, BC_BURY};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (untold[counters[i]] > 0) {
            untold[counters[i]]--;
            return kinds[i];
        }
    }
    return NOTHING;
}

/* What comes next of what is untold; NOTHING if that is all. */
static int next_untold(const teller *told, int64_t untold[COUNTERS], bool stays_reserved)
{
    const int state = told->lives->state;
    if (state == BS_RESERVED) {
        const int ending = take_ending(untold);
        if (ending != NOTHING)
            return ending;
        return untold[RESERVES] > 0 || untold[KICKS] > 0 || !stays_reserved ? BC_RETURN : NOTHING;
    }
    if (untold[KICKS] > 0 && (state == BS_BURIED || untold[BURIES] == 0)) {
        untold[KICKS]--;
        return BC_KICK;
    }
    if (untold[RESERVES] > 0) {
        untold[RESERVES]--;
        return BC_RESERVE;
    }
    return take_ending(untold); /* entries are missing, or say so by mistake */
}

/* All of it, before `until`. */
static void tell_all_untold(teller *told, int64_t untold[COUNTERS], int64_t until, bool stays_reserved)
{
    for (int kind; (kind = next_untold(told, untold, stays_reserved)) != NOTHING;)
        tell_untold(told, kind, until);
}

/* --- from entries to events ----------------------------------------------------------------------------- */

/* The event that an entry was written for; of a copy, the one that made the job what it is, if that is new. */
static int kind_of(const entry *of, const int64_t more[COUNTERS])
{
    switch (of->state) {
    case BS_INVALID:
        return of->truncated ? BC_TRUNCATE : BC_DELETE;
    case BS_RESERVED:
        return more[RESERVES] ? BC_RESERVE : of->full ? NOTHING : BC_TOUCH;
    case BS_BURIED:
        return of->full && !more[BURIES] ? NOTHING : BC_BURY;
    case BS_DELAYED:
        return of->full && !more[RELEASES] ? NOTHING : BC_RELEASE;
    default:
        break;
    }
    if (more[KICKS])
        return BC_KICK;
    if (more[RELEASES])
        return BC_RELEASE;
    if (more[TIMEOUTS])
        return BC_TIMEOUT;
    return of->full ? NOTHING : BC_RETURN;
}

static int counter_of(int kind)
{
    switch (kind) {
    case BC_RESERVE:
        return RESERVES;
    case BC_TIMEOUT:
        return TIMEOUTS;
    case BC_RELEASE:
        return RELEASES;
    case BC_BURY:
        return BURIES;
    case BC_KICK:
        return KICKS;
    default:
        return NOTHING;
    }
}

/* Does this event happen to reserved jobs? */
static bool ends_reserve(int kind)
{
    return kind == BC_RELEASE || kind == BC_BURY || kind == BC_TOUCH || kind == BC_TIMEOUT || kind == BC_RETURN;
}

/* What was counted since the entry before, and is not counted again. */
static void count_more(teller *told, const entry *of, int64_t more[COUNTERS])
{
    for (int i = 0; i < COUNTERS; i++) {
        const int64_t grown = of->counters[i] - told->counters[i];
        more[i] = grown < 0 ? 0 : grown > BC_MOST_UNTOLD ? BC_MOST_UNTOLD : grown;
        told->counters[i] = of->counters[i];
    }
}

/* The last of the untold reserves, if its time is known: the entry says it, or an old deadline does. */
static int64_t last_reserve(const teller *told, const entry *of)
{
    if (of->sound)
        return of->reserved_at;
    const bool has_old = of->state != BS_RESERVED && of->state != BS_DELAYED && of->deadline >= 0;
    const int64_t at = of->deadline - of->ttr * SECOND;
    const bool fits = at >= told->lives->since && (of->until < 0 || at <= of->until);
    return has_old && fits ? at : -1;
}

/* When the event of an entry was, at the earliest. That of a copy was before the copy was made. */
static int64_t earliest(const teller *told, const entry *of)
{
    const int64_t since = told->lives->since;
    return of->sure != BC_BOUNDED ? of->at : of->full || of->at < since ? since : of->at;
}

/* What has happened before the event that the entry was written for. */
static void tell_before(teller *told, const entry *of, int kind, int64_t untold[COUNTERS])
{
    const int64_t latest = of->sure == BC_BOUNDED ? of->until : of->at;
    const bool stays = kind == NOTHING ? of->state == BS_RESERVED : kind != BC_RESERVE && kind != BC_KICK;
    int64_t reserved_at = untold[RESERVES] > 0 ? last_reserve(told, of) : -1;
    int ending = NOTHING;
    if (reserved_at >= 0) {
        const int64_t held = untold[RESERVES] + (told->lives->state == BS_RESERVED);
        const int64_t ended = untold[TIMEOUTS] + untold[RELEASES] + untold[BURIES];
        if (!of->sound && !ends_reserve(kind) && ended >= held)
            ending = take_ending(untold);
        untold[RESERVES]--;
        tell_all_untold(told, untold, reserved_at, false);
        tell_due(told, reserved_at, reserved_at, true);
        tell(told, BC_RESERVE, of->sound ? BC_EXACT : BC_DERIVED, reserved_at, -1);
        told->deadline = reserved_at + of->ttr * SECOND;
        if (ending != NOTHING)
            tell(told, ending, BC_BOUNDED, ending == BC_TIMEOUT ? told->deadline : reserved_at, latest);
    }
    tell_all_untold(told, untold, latest, stays);
}

/* A copy that has nothing new in its counters can tell that a delay was over, or that the job was touched. */
static void tell_of_copy(teller *told, const entry *of)
{
    if (told->lives->state == BS_DELAYED && of->state == BS_READY && told->deadline >= 0)
        tell(told, BC_DUE, BC_DERIVED, told->deadline, -1);
    if (told->lives->state != BS_RESERVED || of->state != BS_RESERVED)
        return;
    if (told->deadline >= 0 && of->deadline > told->deadline + JITTER)
        tell(told, BC_TOUCH, BC_DERIVED, of->at, -1);
    told->deadline = of->deadline;
}

static void tell_entry(teller *told, const entry *of)
{
    int64_t more[COUNTERS];
    count_more(told, of, more);
    const int kind = kind_of(of, more);
    const int counter = counter_of(kind);
    if (counter != NOTHING && more[counter] > 0)
        more[counter]--;
    tell_before(told, of, kind, more);
    if (kind == NOTHING) {
        tell_of_copy(told, of);
        return;
    }
    const int64_t at = earliest(told, of);
    if (kind != BC_KICK)
        tell_due(told, at, of->sure == BC_BOUNDED ? of->until : at, kind != BC_RESERVE);
    const bool has_priority = kind == BC_RELEASE || kind == BC_BURY;
    bc_lives_event(told->lives, (bc_life_event){
                                    .kind = kind,
                                    .sure = of->full && of->sure == BC_EXACT && kind == BC_RESERVE ? BC_DERIVED : of->sure,
                                    .at = at,
                                    .until = of->until,
                                    .priority = has_priority ? of->priority : -1,
                                    .delay = kind == BC_RELEASE ? of->delay : -1,
                                });
    told->deadline = of->state == BS_DELAYED || of->state == BS_RESERVED ? of->deadline : -1;
}

/* --- lives ---------------------------------------------------------------------------------------------- */

/* The first entry that there is. Its put is known by it if nothing else had happened, and its time is in any. */
static void begin(teller *told, const entry *of, int64_t row)
{
    bc_life_columns *columns = &told->lives->told;
    const bool is_put = of->full && !has_counted(of);
    const bool has_delay = of->counters[RELEASES] == 0;
    for (int i = 0; i < COUNTERS; i++)
        told->counters[i] = 0;
    bc_lives_begin(told->lives, row);
    if (told->lives->failed)
        return;
    const int64_t life = bc_lives_last(told->lives);
    columns->complete[life] = is_put;
    bc_lives_event(told->lives, (bc_life_event){
                                    .kind = BC_PUT,
                                    .sure = of->sound ? BC_EXACT : BC_DERIVED,
                                    .at = of->created_at,
                                    .until = -1,
                                    .priority = is_put ? of->priority : -1,
                                    .delay = has_delay ? of->delay : -1,
                                });
    told->deadline = told->lives->state == BS_DELAYED ? of->created_at + of->delay * SECOND : -1;
    if (is_put && of->state == BS_DELAYED)
        told->deadline = of->deadline;
}

/* The row behind the life that begins at a row. */
static int64_t end_of_life(const bc_life_entries *entries, int64_t row)
{
    const int64_t first = row++;
    while (row < entries->rows && entries->id[row] == entries->id[first] &&
           entries->created_at[row] == entries->created_at[first] && entries->host[row] == entries->host[first])
        row++;
    return row;
}

static void tell_life(teller *told, const bc_life_entries *entries, int64_t from, int64_t to)
{
    for (int64_t row = from; row < to && !told->lives->failed; row++) {
        const entry of = entry_of(entries, row);
        if (row == from)
            begin(told, &of, row);
        if (told->lives->failed)
            return;
        tell_entry(told, &of);
        if (of.full)
            told->lives->told.full_row[bc_lives_last(told->lives)] = row;
    }
    if (!told->lives->failed)
        told->lives->told.last_row[bc_lives_last(told->lives)] = to - 1;
}

int64_t bc_lives_of_entries(bc_lives *lives, const bc_life_entries *entries, int last)
{
    teller told = {.lives = lives};
    int64_t row = 0;
    bc_lives_forget(lives);
    while (row < entries->rows) {
        const int64_t end = end_of_life(entries, row);
        if (end == entries->rows && !last)
            break;
        tell_life(&told, entries, row, end);
        if (lives->failed)
            return -ENOMEM;
        row = end;
    }
    return row;
}
