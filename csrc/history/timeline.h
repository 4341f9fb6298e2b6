/* What has happened to one job, as far as a history of it will tell: its events, and what the last entry said.
 *
 * Only jobs of which more is known than their put have one (job_histories.h). The put is no event here: its time is that of
 * the job's creation. Of many events the first and the last are kept. Knows nothing of files or messages.
 */
#ifndef BS_TIMELINE_H
#define BS_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "binlog_files/entry.h"
#include "base/clock.h"

typedef enum {
    BS_TIMELINE_UNKNOWN, /* in its position there was one that is not known any more */
    BS_TIMELINE_RESERVE,
    BS_TIMELINE_TOUCH,
    BS_TIMELINE_RELEASE,
    BS_TIMELINE_TIMEOUT,
    BS_TIMELINE_KICK,
    BS_TIMELINE_RETURN, /* the connection that held the job has ended */
    BS_TIMELINE_BURY,
    BS_TIMELINE_DUE,    /* its delay was over */
    BS_TIMELINE_DELETE,
    BS_TIMELINE_KINDS
} bs_timeline_kind;

typedef struct {
    int64_t at;     /* wall; -1: not known */
    uint32_t pri;   /* these two of release, the priority of bury, too */
    uint32_t delay; /* seconds */
    uint8_t kind;   /* bs_timeline_kind */
} bs_timeline_event;

/* How many events are kept: the first `head`, and the last `tail`, at least one. */
typedef struct {
    uint32_t head;
    uint32_t tail;
} bs_timeline_limits;

enum { BS_COUNTERS = 5, BS_TIMELINE_TEXT_MAX = 64 };

/* One allocation, freed with free(). */
typedef struct {
    int64_t created_at;
    int64_t deadline;     /* state Delayed: the end of the delay, wall */
    uint32_t counters[5]; /* BS_COUNTERS: reserves, timeouts, releases, buries, kicks */
    uint32_t crc;         /* the checksum field of its last entry */
    uint32_t put_pri;     /* these two when it was put */
    uint32_t put_delay;   /* seconds */
    uint32_t count;       /* events, kept or not */
    uint32_t capacity;    /* events that there is room for */
    uint8_t state;
    bool restored; /* from before a restart */
    bs_timeline_event events[];
} bs_timeline;

/* An empty one that says what the entry says, its event not included; `put` has priority and delay of the put. NULL: no
 * memory. */
bs_timeline *bs_timeline_new(const bs_entry *entry, const bs_entry *put);

/* What the last entry says of the job. */
void bs_timeline_update(bs_timeline *timeline, const bs_entry *entry);

/* Is one of its counters higher than it was? */
bool bs_timeline_counters_grew(const bs_timeline *timeline, const bs_entry *entry);

/* Adds what the entry has made of the job, one event to three, and notes what it says. The timeline may move. 0 or -ENOMEM,
 * and then nothing has changed. */
int bs_timeline_add(bs_timeline **timeline, const bs_timeline_limits *limits, const bs_entry *entry);

/* Is the event of this number kept, counted from 0? */
static inline bool bs_timeline_keeps(const bs_timeline *timeline, const bs_timeline_limits *limits, uint32_t number)
{
    return number < limits->head || timeline->count - number <= limits->tail;
}

/* Where it is. */
static inline uint32_t bs_timeline_slot(const bs_timeline_limits *limits, uint32_t number)
{
    return number < limits->head ? number : limits->head + (number - limits->head) % limits->tail;
}

/* Nanoseconds as whole seconds, up. */
static inline uint32_t bs_seconds(int64_t nanoseconds)
{
    return (uint32_t)((nanoseconds + BS_SECOND - 1) / BS_SECOND);
}

/* As bs_timeline_update for a copy, which makes no event but one: a delay that was over by then. 0 or -ENOMEM. */
int bs_timeline_add_copy(bs_timeline **timeline, const bs_timeline_limits *limits, const bs_entry *entry);

/* Room for so many events of one that has `count`. 0 or -ENOMEM. */
int bs_timeline_reserve(bs_timeline **timeline, const bs_timeline_limits *limits, uint32_t count);

/* Writes the timeline. Takes at most BS_TIMELINE_TEXT_MAX bytes for each event that is kept, and for the put. Returns what
 * follows the text. */
char *bs_timeline_write(char *out, const bs_timeline *timeline, const bs_timeline_limits *limits);

/* Decimal digits; returns what follows them. */
char *bs_write_number(char *out, uint64_t number);

#endif
