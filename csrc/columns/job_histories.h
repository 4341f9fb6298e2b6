/* Lives of jobs as columns: events go in one by one, in their order, and what they amount to is counted meanwhile. Knows
 * nothing of where the events come from. */
#ifndef BC_JOB_HISTORIES_H
#define BC_JOB_HISTORIES_H

#include <stdbool.h>
#include <stdint.h>

#include "columns/columns.h"

typedef enum { BC_EXACT, BC_DERIVED, BC_BOUNDED } bc_certainty;

/* Times are nanoseconds, -1: not known. */
typedef struct {
    int kind; /* BC_PUT to BC_TRUNCATE */
    bc_certainty sure;
    int64_t at;       /* of a bounded one, the earliest it can be */
    int64_t until;    /* of a bounded one, the latest */
    int64_t priority; /* -1: it has none */
    int64_t delay;    /* seconds; -1: it has none */
} bc_event;

struct bc_histories {
    bc_history_columns columns;
    int64_t capacity;
    int64_t event_capacity;
    int64_t since; /* of the last event of the history that is being out */
    int state;     /* after it, as in entries; BS_INVALID: it has ended, or the state is not known */
    bool failed;   /* no memory */
};

void bc_histories_clear(bc_histories *histories);

/* Begins a history. All its values are to be set but those that its events add_event. */
void bc_histories_begin(bc_histories *histories, int64_t row);

void bc_histories_add_event(bc_histories *histories, bc_event event);

/* The history that is being out. */
static inline int64_t bc_histories_last(const bc_histories *histories)
{
    return histories->columns.count - 1;
}

#endif
