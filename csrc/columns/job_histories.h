/* Collects job histories as columns: events are added one by one, and their totals are computed. */
#ifndef BC_JOB_HISTORIES_H
#define BC_JOB_HISTORIES_H

#include <stdbool.h>
#include <stdint.h>

#include "columns/columns.h"

typedef enum { BC_EXACT, BC_DERIVED, BC_BOUNDED } bc_certainty;

/* Times are nanoseconds, -1: unknown. */
typedef struct {
    int kind; /* BC_PUT to BC_TRUNCATE */
    bc_certainty sure;
    int64_t at;       /* if bounded, the earliest possible time */
    int64_t until;    /* if bounded, the latest possible time */
    int64_t priority; /* -1: none */
    int64_t delay;    /* seconds; -1: none */
} bc_event;

struct bc_histories {
    bc_history_columns columns;
    int64_t capacity;
    int64_t event_capacity;
    int64_t since; /* of the current history's last event */
    int state;     /* after it, as in entries; BS_INVALID: it ended, or the state is unknown */
    bool failed;   /* no memory */
};

void bc_histories_clear(bc_histories *histories);

/* Begins a history; the caller sets the values that do not follow from its events. */
void bc_histories_begin(bc_histories *histories, int64_t row);

void bc_histories_add_event(bc_histories *histories, bc_event event);

/* Returns the current history. */
static inline int64_t bc_histories_current(const bc_histories *histories)
{
    return histories->columns.count - 1;
}

#endif
