/* The timeline of one job: its events and the state after its last entry.
 *
 * Only jobs with more than their put have one (job_history.h). The put is no event; it happened when the job was
 * created. Of many events the first and the last ones are kept.
 */
#ifndef BS_TIMELINE_H
#define BS_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "binlog_files/entry.h"
#include "base/clock.h"
#include "base/number.h"

typedef enum {
    BS_TIMELINE_UNKNOWN, /* a lost event */
    BS_TIMELINE_RESERVE,
    BS_TIMELINE_TOUCH,
    BS_TIMELINE_RELEASE,
    BS_TIMELINE_TIMEOUT,
    BS_TIMELINE_KICK,
    BS_TIMELINE_RETURN, /* the client that had reserved the job disconnected */
    BS_TIMELINE_BURY,
    BS_TIMELINE_DUE,    /* its delay was over */
    BS_TIMELINE_DELETE,
    BS_TIMELINE_KINDS
} bs_timeline_kind;

typedef struct {
    int64_t at;     /* wall; -1: unknown */
    uint32_t pri;   /* pri and delay of a release, pri of a bury */
    uint32_t delay; /* seconds */
    uint8_t kind;   /* bs_timeline_kind */
} bs_timeline_event;

/* The number of kept events: the first `head` and the last `tail`, at least one. */
typedef struct {
    uint32_t head;
    uint32_t tail;
} bs_timeline_limits;

enum { BS_COUNTERS = 5, BS_TIMELINE_TEXT_MAX = 64 };

/* One allocation, freed with free(). */
typedef struct {
    int64_t created_at;
    int64_t deadline;     /* state Delayed: the end of the delay, wall */
    uint32_t counters[BS_COUNTERS]; /* reserves, timeouts, releases, buries, kicks */
    uint32_t crc;         /* the checksum field of its last entry */
    uint32_t put_pri;     /* of the put */
    uint32_t put_delay;   /* of the put, seconds */
    uint32_t count;       /* events, kept or not */
    uint32_t capacity;    /* of `events` */
    uint8_t state;
    bool restored; /* from a checkpoint */
    bs_timeline_event events[];
} bs_timeline;

/* Creates a timeline without events, in the state after `entry`; `put` has the put's priority and delay. NULL without
 * memory. */
bs_timeline *bs_timeline_new(const bs_entry *entry, const bs_entry *put);

/* Adds the one to four events that the entry implies, and sets the state after it. The timeline may move. Returns 0,
 * or -ENOMEM without changes. */
int bs_timeline_add(bs_timeline **timeline, const bs_timeline_limits *limits, const bs_entry *entry);

/* Returns whether the event of this number, counted from 0, is kept. */
static inline bool bs_timeline_keeps(const bs_timeline *timeline, const bs_timeline_limits *limits, uint32_t number)
{
    return number < limits->head || timeline->count - number <= limits->tail;
}

/* Returns the index in `events` of the kept event of this number. */
static inline uint32_t bs_timeline_slot(const bs_timeline_limits *limits, uint32_t number)
{
    return number < limits->head ? number : limits->head + (number - limits->head) % limits->tail;
}

/* Returns whether the event of this number is kept and not lost. */
static inline bool bs_timeline_knows(const bs_timeline *timeline, const bs_timeline_limits *limits, uint32_t number)
{
    return bs_timeline_keeps(timeline, limits, number) &&
           timeline->events[bs_timeline_slot(limits, number)].kind != BS_TIMELINE_UNKNOWN;
}

/* Rounds up. */
static inline uint32_t bs_seconds(int64_t nanoseconds)
{
    return (uint32_t)((nanoseconds + BS_SECOND - 1) / BS_SECOND);
}

/* Like bs_timeline_add for a copied entry, which implies only the end of a delay unless a counter is higher. */
int bs_timeline_add_copy(bs_timeline **timeline, const bs_timeline_limits *limits, const bs_entry *entry);

/* Makes space for `count` events. Returns 0 or -ENOMEM. */
int bs_timeline_reserve(bs_timeline **timeline, const bs_timeline_limits *limits, uint32_t count);

/* Writes the timeline as text, at most BS_TIMELINE_TEXT_MAX bytes for each kept event and for the put. Returns the end
 * of the text. */
char *bs_timeline_write(char *out, const bs_timeline *timeline, const bs_timeline_limits *limits);

#endif
