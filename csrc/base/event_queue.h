/* The events for Python, in order. Bounded: a flood of log lines loses lines and reports how many. */
#ifndef BS_EVENTS_H
#define BS_EVENTS_H

#include "api/server.h"

enum { BS_INFO = 20, BS_WARNING = 30, BS_ERROR = 40 }; /* levels of Python's logging */

/* All zeros is an empty queue. */
typedef struct {
    bs_event *ring;
    uint32_t head;
    uint32_t count;
    uint32_t capacity; /* a power of two, or 0 */
    uint32_t lost;
} bs_events;

void bs_events_add(bs_events *events, int kind, uint64_t session);

/* Adds an empty event, to be filled in before the next call; NULL: it is lost, and counted. Warnings have space left
 * when traces have none. */
bs_event *bs_events_trace(bs_events *events, int kind);
bs_event *bs_events_warn(bs_events *events, int kind);
void bs_events_log(bs_events *events, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* 1, or 0 if there is none. */
int bs_events_take(bs_events *events, bs_event *event);
void bs_events_free(bs_events *events);

#endif
