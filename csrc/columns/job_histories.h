/* Lives of jobs as columns: events go in one by one, in their order, and what they amount to is counted meanwhile. Knows
 * nothing of where the events come from. */
#ifndef BC_LIVES_H
#define BC_LIVES_H

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
} bc_life_event;

struct bc_lives {
    bc_life_columns told;
    int64_t capacity;
    int64_t event_capacity;
    int64_t since; /* of the last event of the life that is being told */
    int state;     /* after it, as in entries; BS_INVALID: it has ended, or the state is not known */
    bool failed;   /* no memory */
};

void bc_lives_forget(bc_lives *lives);

/* Begins a life. All its values are to be set but those that its events tell. */
void bc_lives_begin(bc_lives *lives, int64_t row);

void bc_lives_event(bc_lives *lives, bc_life_event event);

/* The life that is being told. */
static inline int64_t bc_lives_last(const bc_lives *lives)
{
    return lives->told.count - 1;
}

#endif
