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

typedef enum {
    BS_LIFE_FORGOTTEN, /* in its place there was one that is not known any more */
    BS_LIFE_RESERVE,
    BS_LIFE_TOUCH,
    BS_LIFE_RELEASE,
    BS_LIFE_TIMEOUT,
    BS_LIFE_KICK,
    BS_LIFE_RETURN, /* the connection that held the job has ended */
    BS_LIFE_BURY,
    BS_LIFE_DUE,    /* its delay was over */
    BS_LIFE_DELETE,
    BS_LIFE_KINDS
} bs_life_kind;

typedef struct {
    int64_t at;     /* wall; -1: not known */
    uint32_t pri;   /* these two of release, the priority of bury, too */
    uint32_t delay; /* seconds */
    uint8_t kind;   /* bs_life_kind */
} bs_life_event;

/* How many events are kept: the first `head`, and the last `tail`, at least one. */
typedef struct {
    uint32_t head;
    uint32_t tail;
} bs_life_shape;

enum { BS_COUNTERS = 5, BS_LIFE_TEXT_MAX = 64 };

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
    bool carried; /* from before a restart */
    bs_life_event events[];
} bs_life;

/* An empty one that says what the entry says, its event not included; `put` has priority and delay of the put. NULL: no
 * memory. */
bs_life *bs_life_new(const bs_entry *entry, const bs_entry *put);

/* What the last entry says of the job. */
void bs_life_note(bs_life *life, const bs_entry *entry);

/* Is one of its counters higher than it was? */
bool bs_life_grown(const bs_life *life, const bs_entry *entry);

/* Adds what the entry has made of the job, one event to three, and notes what it says. The life may move. 0 or -ENOMEM,
 * and then nothing has changed. */
int bs_life_add(bs_life **life, const bs_life_shape *shape, const bs_entry *entry);

/* Is the event of this number kept, counted from 0? */
static inline bool bs_life_keeps(const bs_life *life, const bs_life_shape *shape, uint32_t number)
{
    return number < shape->head || life->count - number <= shape->tail;
}

/* Where it is. */
static inline uint32_t bs_life_slot(const bs_life_shape *shape, uint32_t number)
{
    return number < shape->head ? number : shape->head + (number - shape->head) % shape->tail;
}

/* Nanoseconds as whole seconds, up. */
static inline uint32_t bs_seconds(int64_t nanoseconds)
{
    return (uint32_t)((nanoseconds + 999999999) / 1000000000);
}

/* As bs_life_note for a copy, which makes no event but one: a delay that was over by then. 0 or -ENOMEM. */
int bs_life_copy(bs_life **life, const bs_life_shape *shape, const bs_entry *entry);

/* Room for so many events of one that has `count`. 0 or -ENOMEM. */
int bs_life_room(bs_life **life, const bs_life_shape *shape, uint32_t count);

/* Writes the timeline. Takes at most BS_LIFE_TEXT_MAX bytes for each event that is kept, and for the put. Returns what
 * follows the text. */
char *bs_timeline_write(char *out, const bs_life *life, const bs_life_shape *shape);

/* Decimal digits; returns what follows them. */
char *bs_write_number(char *out, uint64_t number);

#endif
