#include "base/event_queue.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ring.h"

enum { SMALLEST = 8, KEPT = 64, MOST_TRACES = 4096, MOST_LINES = MOST_TRACES + 1024 };

static bs_event *push(bs_events *events)
{
    if (events->count == events->capacity)
        events->ring =
            bs_ring_must_grow(events->ring, &events->head, &events->capacity, SMALLEST, sizeof *events->ring);
    bs_event *event = &events->ring[bs_ring_at(events->head, events->count++, events->capacity)];
    *event = (bs_event){0};
    return event;
}

void bs_events_add(bs_events *events, int kind, uint64_t session)
{
    bs_event *event = push(events);
    event->kind = kind;
    event->session = session;
}

static bs_event *push_below(bs_events *events, int kind, uint32_t most)
{
    if (events->count >= most) {
        events->lost++;
        return NULL;
    }
    bs_event *event = push(events);
    event->kind = kind;
    return event;
}

bs_event *bs_events_trace(bs_events *events, int kind)
{
    return push_below(events, kind, MOST_TRACES);
}

bs_event *bs_events_warn(bs_events *events, int kind)
{
    return push_below(events, kind, MOST_LINES);
}

void bs_events_log(bs_events *events, int level, const char *format, ...)
{
    bs_event *event = bs_events_warn(events, BS_EVENT_LOG);
    if (!event)
        return;
    event->level = level;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(event->text, sizeof event->text, format, arguments); /* a longer line is cut */
    va_end(arguments);
}

int bs_events_take(bs_events *events, bs_event *event)
{
    if (events->count == 0) {
        if (events->lost == 0)
            return 0;
        uint32_t lost = events->lost;
        events->lost = 0;
        bs_events_log(events, BS_WARNING, "%u more lines were not logged", lost);
    }
    *event = events->ring[events->head];
    events->head = bs_ring_at(events->head, 1, events->capacity);
    events->count--;
    if (events->count == 0 && events->capacity > KEPT) { /* a flood is over */
        free(events->ring);
        events->ring = NULL;
        events->capacity = events->head = 0;
    }
    return 1;
}

void bs_events_free(bs_events *events)
{
    free(events->ring);
    *events = (bs_events){0};
}
