#include "history/timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_EVENTS = 4, KICKS = 4, RELEASES = 2, TIMEOUTS = 1, RESERVES = 0 };

static void counters_of(const bs_entry *entry, uint32_t counters[BS_COUNTERS])
{
    const uint32_t said[BS_COUNTERS] = {entry->reserves, entry->timeouts, entry->releases, entry->buries,
                                        entry->kicks};
    memcpy(counters, said, sizeof said);
}

bs_life *bs_life_new(const bs_entry *entry, const bs_entry *put)
{
    bs_life *life = malloc(sizeof *life + FIRST_EVENTS * sizeof(bs_life_event));
    if (!life)
        return NULL;
    *life = (bs_life){.created_at = entry->created_at,
                      .capacity = FIRST_EVENTS,
                      .put_pri = put->pri,
                      .put_delay = bs_seconds(put->delay)};
    bs_life_note(life, entry);
    return life;
}

void bs_life_note(bs_life *life, const bs_entry *entry)
{
    counters_of(entry, life->counters);
    life->state = entry->state;
    life->deadline = entry->state == BS_DELAYED ? entry->at : 0;
    life->crc = entry->crc;
}

bool bs_life_grown(const bs_life *life, const bs_entry *entry)
{
    uint32_t counters[BS_COUNTERS];
    counters_of(entry, counters);
    for (size_t i = 0; i < BS_COUNTERS; i++)
        if (counters[i] > life->counters[i])
            return true;
    return false;
}

int bs_life_room(bs_life **life, const bs_life_shape *shape, uint32_t count)
{
    const uint32_t most = shape->head + shape->tail;
    const uint32_t wanted = count < most ? count : most;
    uint32_t capacity = (*life)->capacity;
    if (wanted <= capacity)
        return 0;
    while (capacity < wanted)
        capacity *= 2;
    bs_life *grown = realloc(*life, sizeof *grown + capacity * sizeof(bs_life_event));
    if (!grown)
        return -ENOMEM;
    grown->capacity = capacity;
    *life = grown;
    return 0;
}

/* --- from entries to events ----------------------------------------------------------------------------- */

/* What an entry with this state tells, after what the one before it said. */
static bs_life_kind kind_of(const bs_life *life, const bs_entry *entry)
{
    switch (entry->state) {
    case BS_INVALID:
        return BS_LIFE_DELETE;
    case BS_RESERVED:
        return entry->reserves > life->counters[RESERVES] ? BS_LIFE_RESERVE : BS_LIFE_TOUCH;
    case BS_BURIED:
        return BS_LIFE_BURY;
    case BS_DELAYED:
        return BS_LIFE_RELEASE;
    default:
        break;
    }
    if (entry->releases > life->counters[RELEASES])
        return BS_LIFE_RELEASE;
    if (entry->timeouts > life->counters[TIMEOUTS])
        return BS_LIFE_TIMEOUT;
    return entry->kicks > life->counters[KICKS] ? BS_LIFE_KICK : BS_LIFE_RETURN;
}

static void push(bs_life *life, const bs_life_shape *shape, bs_life_event event)
{
    life->events[bs_life_slot(shape, life->count)] = event;
    life->count++;
}

int bs_life_add(bs_life **life, const bs_life_shape *shape, const bs_entry *entry)
{
    int error = bs_life_room(life, shape, (*life)->count + 3);
    if (error)
        return error;
    bs_life *of = *life;
    const bs_life_kind kind = kind_of(of, entry);
    const int64_t at = bs_entry_event(entry);
    const bool tells_reserve = entry->untold && entry->reserves > of->counters[RESERVES];
    const int64_t first = tells_reserve ? bs_entry_reserved_at(entry) : at;
    if (of->state == BS_DELAYED && kind != BS_LIFE_KICK && first > of->deadline)
        push(of, shape, (bs_life_event){.at = of->deadline, .kind = BS_LIFE_DUE});
    if (tells_reserve)
        push(of, shape, (bs_life_event){.at = first, .kind = BS_LIFE_RESERVE});
    push(of, shape,
         (bs_life_event){.at = at, .pri = entry->pri, .delay = bs_seconds(entry->delay), .kind = (uint8_t)kind});
    bs_life_note(of, entry);
    return 0;
}

int bs_life_copy(bs_life **life, const bs_life_shape *shape, const bs_entry *entry)
{
    if ((*life)->state == BS_DELAYED && entry->state == BS_READY) {
        int error = bs_life_room(life, shape, (*life)->count + 1);
        if (error)
            return error;
        push(*life, shape, (bs_life_event){.at = (*life)->deadline, .kind = BS_LIFE_DUE});
    }
    bs_life_note(*life, entry);
    return 0;
}

/* --- as text -------------------------------------------------------------------------------------------- */

static const char *const names[BS_LIFE_KINDS] = {
    [BS_LIFE_RESERVE] = "reserve", [BS_LIFE_TOUCH] = "touch", [BS_LIFE_RELEASE] = "release",
    [BS_LIFE_TIMEOUT] = "timeout", [BS_LIFE_KICK] = "kick",   [BS_LIFE_RETURN] = "return",
    [BS_LIFE_BURY] = "bury",       [BS_LIFE_DUE] = "due",     [BS_LIFE_DELETE] = "delete",
};

char *bs_write_number(char *out, uint64_t number)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                                "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                                "8081828384858687888990919293949596979899";
    char digits[20];
    char *at = digits + sizeof digits;
    for (; number >= 100; number /= 100)
        memcpy(at -= 2, pairs + number % 100 * 2, 2);
    if (number >= 10)
        memcpy(at -= 2, pairs + number * 2, 2);
    else
        *--at = (char)('0' + number);
    size_t length = (size_t)(digits + sizeof digits - at);
    memcpy(out, at, length);
    return out + length;
}

static char *write_text(char *out, const char *text)
{
    size_t length = strlen(text);
    memcpy(out, text, length);
    return out + length;
}

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
    out = bs_write_number(write_text(out, ",pri="), pri);
    return delay ? bs_write_number(write_text(out, ",delay="), delay) : out;
}

static char *write_event(char *out, const bs_life_event *event)
{
    out = write_time(write_text(out, names[event->kind]), event->at);
    if (event->kind == BS_LIFE_RELEASE)
        out = write_numbers(out, event->pri, event->delay);
    else if (event->kind == BS_LIFE_BURY)
        out = write_numbers(out, event->pri, 0);
    return out;
}

static bool shown(const bs_life *life, const bs_life_shape *shape, uint32_t number)
{
    return bs_life_keeps(life, shape, number) &&
           life->events[bs_life_slot(shape, number)].kind != BS_LIFE_FORGOTTEN;
}

char *bs_timeline_write(char *out, const bs_life *life, const bs_life_shape *shape)
{
    out = write_time(write_text(out, "put"), life->created_at);
    out = write_numbers(out, life->put_pri, life->put_delay);
    const uint32_t count = life->count;
    const uint32_t tail_at = count > shape->tail ? count - shape->tail : 0;
    uint32_t left_out = 0;
    for (uint32_t number = 0; number < count; number++) {
        if (number >= shape->head && number < tail_at) {
            left_out += tail_at - number;
            number = tail_at;
        }
        if (!shown(life, shape, number)) {
            left_out++;
            continue;
        }
        if (left_out) {
            out = bs_write_number(write_text(out, ";..."), left_out);
            left_out = 0;
        }
        *out++ = ';';
        out = write_event(out, &life->events[bs_life_slot(shape, number)]);
    }
    return out;
}
