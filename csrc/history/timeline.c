#include "history/timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_EVENTS = 4, KICKS = 4, RELEASES = 2, TIMEOUTS = 1, RESERVES = 0 };

static void counters_of(const bs_entry *entry, uint32_t counters[BS_COUNTERS])
{
    const uint32_t now[BS_COUNTERS] = {entry->reserves, entry->timeouts, entry->releases, entry->buries,
                                        entry->kicks};
    memcpy(counters, now, sizeof now);
}

static void set_state(bs_timeline *timeline, const bs_entry *entry)
{
    counters_of(entry, timeline->counters);
    timeline->state = entry->state;
    timeline->deadline = entry->state == BS_DELAYED ? entry->at : 0;
    timeline->crc = entry->crc;
}

bs_timeline *bs_timeline_new(const bs_entry *entry, const bs_entry *put)
{
    bs_timeline *timeline = malloc(sizeof *timeline + FIRST_EVENTS * sizeof(bs_timeline_event));
    if (!timeline)
        return NULL;
    *timeline = (bs_timeline){.created_at = entry->created_at,
                      .capacity = FIRST_EVENTS,
                      .put_pri = put->pri,
                      .put_delay = bs_seconds(put->delay)};
    set_state(timeline, entry);
    return timeline;
}

/* Returns whether one of the entry's counters is higher. */
static bool counters_grew(const bs_timeline *timeline, const bs_entry *entry)
{
    uint32_t counters[BS_COUNTERS];
    counters_of(entry, counters);
    for (size_t i = 0; i < BS_COUNTERS; i++)
        if (counters[i] > timeline->counters[i])
            return true;
    return false;
}

int bs_timeline_reserve(bs_timeline **timeline, const bs_timeline_limits *limits, uint32_t count)
{
    const uint32_t most = limits->head + limits->tail;
    const uint32_t wanted = count < most ? count : most;
    uint32_t capacity = (*timeline)->capacity;
    if (wanted <= capacity)
        return 0;
    while (capacity < wanted)
        capacity *= 2;
    bs_timeline *grown = realloc(*timeline, sizeof *grown + capacity * sizeof(bs_timeline_event));
    if (!grown)
        return -ENOMEM;
    grown->capacity = capacity;
    *timeline = grown;
    return 0;
}

/* Returns the event that an entry records, given the job's previous entry. */
static bs_timeline_kind kind_of(const bs_timeline *timeline, const bs_entry *entry)
{
    switch (entry->state) {
    case BS_INVALID:
        return BS_TIMELINE_DELETE;
    case BS_RESERVED:
        return entry->reserves > timeline->counters[RESERVES] ? BS_TIMELINE_RESERVE : BS_TIMELINE_TOUCH;
    case BS_BURIED:
        return BS_TIMELINE_BURY;
    case BS_DELAYED: /* a tube policy may delay a job that timed out */
    default:
        break;
    }
    if (entry->releases > timeline->counters[RELEASES])
        return BS_TIMELINE_RELEASE;
    if (entry->timeouts > timeline->counters[TIMEOUTS])
        return BS_TIMELINE_TIMEOUT;
    if (entry->state == BS_DELAYED)
        return BS_TIMELINE_RELEASE;
    return entry->kicks > timeline->counters[KICKS] ? BS_TIMELINE_KICK : BS_TIMELINE_RETURN;
}

static void push(bs_timeline *timeline, const bs_timeline_limits *limits, bs_timeline_event event)
{
    timeline->events[bs_timeline_slot(limits, timeline->count)] = event;
    timeline->count++;
}

/* Returns how a job came back when a policy ended it; BS_TIMELINE_UNKNOWN if that is not certain.
 * Timeouts may have no entry, and expired jobs may have been ready, so the reserve that ended must be known: it is in
 * this entry alone, or in earlier ones and the policy acts only on returns. */
static bs_timeline_kind return_before_end(const bs_timeline *timeline, const bs_entry *entry, bool includes_reserve)
{
    const uint32_t reserves = entry->reserves - timeline->counters[RESERVES];
    const bool was_reserved = timeline->state == BS_RESERVED;
    const bool is_last = reserves == 0 && was_reserved && entry->ended != BS_ENDED_EXPIRED;
    if (entry->ended < BS_ENDED_EXPIRED || !(includes_reserve ? reserves == 1 && !was_reserved : is_last))
        return BS_TIMELINE_UNKNOWN;
    if (entry->releases > timeline->counters[RELEASES])
        return BS_TIMELINE_RELEASE;
    if (entry->timeouts > timeline->counters[TIMEOUTS])
        return BS_TIMELINE_TIMEOUT;
    return includes_reserve ? BS_TIMELINE_RETURN : BS_TIMELINE_UNKNOWN;
}

int bs_timeline_add(bs_timeline **timeline, const bs_timeline_limits *limits, const bs_entry *entry)
{
    int error = bs_timeline_reserve(timeline, limits, (*timeline)->count + 4);
    if (error)
        return error;
    bs_timeline *grown = *timeline;
    const bs_timeline_kind kind = kind_of(grown, entry);
    const int64_t at = bs_entry_event_at(entry);
    const bool includes_reserve = entry->reserve_age && entry->reserves > grown->counters[RESERVES];
    const int64_t first = includes_reserve ? bs_entry_reserved_at(entry) : at;
    if (grown->state == BS_DELAYED && kind != BS_TIMELINE_KICK && first > grown->deadline)
        push(grown, limits, (bs_timeline_event){.at = grown->deadline, .kind = BS_TIMELINE_DUE});
    if (includes_reserve)
        push(grown, limits, (bs_timeline_event){.at = first, .kind = BS_TIMELINE_RESERVE});
    const bs_timeline_kind came_back = return_before_end(grown, entry, includes_reserve);
    if (came_back != BS_TIMELINE_UNKNOWN)
        push(grown, limits, (bs_timeline_event){.at = at, .pri = entry->pri, .kind = (uint8_t)came_back});
    push(grown, limits,
         (bs_timeline_event){.at = at, .pri = entry->pri, .delay = bs_seconds(entry->delay), .kind = (uint8_t)kind});
    set_state(grown, entry);
    return 0;
}

int bs_timeline_add_copy(bs_timeline **timeline, const bs_timeline_limits *limits, const bs_entry *entry)
{
    if (counters_grew(*timeline, entry))
        return bs_timeline_add(timeline, limits, entry);
    if ((*timeline)->state == BS_DELAYED && entry->state == BS_READY) {
        int error = bs_timeline_reserve(timeline, limits, (*timeline)->count + 1);
        if (error)
            return error;
        push(*timeline, limits, (bs_timeline_event){.at = (*timeline)->deadline, .kind = BS_TIMELINE_DUE});
    }
    set_state(*timeline, entry);
    return 0;
}

static const char *const names[BS_TIMELINE_KINDS] = {
    [BS_TIMELINE_RESERVE] = "reserve", [BS_TIMELINE_TOUCH] = "touch", [BS_TIMELINE_RELEASE] = "release",
    [BS_TIMELINE_TIMEOUT] = "timeout", [BS_TIMELINE_KICK] = "kick",   [BS_TIMELINE_RETURN] = "return",
    [BS_TIMELINE_BURY] = "bury",       [BS_TIMELINE_DUE] = "due",     [BS_TIMELINE_DELETE] = "delete",
};

static char *write_time(char *out, int64_t at)
{
    *out++ = '@';
    if (at >= 0)
        return bs_write_number(out, (uint64_t)at);
    *out++ = '?';
    return out;
}

static char *write_numbers(char *out, uint32_t pri, uint32_t delay)
{
    out = bs_write_number(bs_write_text(out, ",pri="), pri);
    return delay ? bs_write_number(bs_write_text(out, ",delay="), delay) : out;
}

static char *write_event(char *out, const bs_timeline_event *event)
{
    out = write_time(bs_write_text(out, names[event->kind]), event->at);
    if (event->kind == BS_TIMELINE_RELEASE)
        out = write_numbers(out, event->pri, event->delay);
    else if (event->kind == BS_TIMELINE_BURY)
        out = write_numbers(out, event->pri, 0);
    return out;
}

char *bs_timeline_write(char *out, const bs_timeline *timeline, const bs_timeline_limits *limits)
{
    out = write_time(bs_write_text(out, "put"), timeline->created_at);
    out = write_numbers(out, timeline->put_pri, timeline->put_delay);
    const uint32_t count = timeline->count;
    const uint32_t tail_at = count > limits->tail ? count - limits->tail : 0;
    uint32_t omitted = 0;
    for (uint32_t number = 0; number < count; number++) {
        if (number >= limits->head && number < tail_at) {
            omitted += tail_at - number;
            number = tail_at;
        }
        if (!bs_timeline_knows(timeline, limits, number)) {
            omitted++;
            continue;
        }
        if (omitted) {
            out = bs_write_number(bs_write_text(out, ";..."), omitted);
            omitted = 0;
        }
        *out++ = ';';
        out = write_event(out, &timeline->events[bs_timeline_slot(limits, number)]);
    }
    return out;
}
