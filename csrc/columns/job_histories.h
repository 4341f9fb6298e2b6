/* Collects job histories as columns: events are added one by one, and the job's states over time are computed at the
 * end (state_spans.c). */
#ifndef BC_JOB_HISTORIES_H
#define BC_JOB_HISTORIES_H

#include <stdbool.h>
#include <stdint.h>

#include "columns/columns.h"
#include "jobs/job.h"

/* Sets of states: 1 << state. */
enum {
    BC_ONLY_RESERVED = 1 << BS_RESERVED,
    BC_EITHER = 1 << BS_READY | 1 << BS_RESERVED,
    BC_ANY = 1 << BS_READY | 1 << BS_RESERVED | 1 << BS_BURIED | 1 << BS_DELAYED
};

/* Times are nanoseconds, -1: unknown. */
typedef struct {
    int kind; /* BC_PUT to BC_DISCARD */
    bc_certainty certainty;
    int64_t at;       /* if bounded, the earliest possible time */
    int64_t until;    /* if bounded, the latest possible time */
    int64_t priority; /* -1: none */
    int64_t delay;    /* seconds; -1: none */
} bc_event;

struct bc_histories {
    bc_history_columns columns;
    int64_t capacity;
    int64_t event_capacity;
    int64_t span_capacity;
    int64_t since; /* of the current history's last event */
    int state;     /* the likely one after it, as in entries */
    bool failed;   /* no memory */
};

void bc_histories_clear(bc_histories *histories);

/* Begins a history; the caller sets the values that do not follow from its events. */
void bc_histories_begin(bc_histories *histories, int64_t row);

void bc_histories_add_event(bc_histories *histories, bc_event event);

/* Sets the states that the job may have had between the last event and the next one. */
void bc_histories_set_states(bc_histories *histories, int states);

void bc_histories_add_span(bc_histories *histories, int64_t at, int state);

/* Completes the current history: tightens the bounds of its events by those of later ones, and computes spans, the time
 * in each state, and the bounds of the first reserve and of the end. */
void bc_histories_finish(bc_histories *histories);

static inline int64_t bc_histories_current(const bc_histories *histories)
{
    return histories->columns.count - 1;
}

#endif
