#include "columns/job_histories.h"

#include <errno.h>
#include <stdlib.h>

#include "queue/job.h"

enum { LEAST = 4096, MICROSECOND = 1000 };

bc_lives *bc_lives_new(void)
{
    return calloc(1, sizeof(bc_lives));
}

/* --- memory --------------------------------------------------------------------------------------------- */

/* The columns of lives, then those of events, as they lie in the structure. */
static int64_t **life_columns(bc_lives *lives, size_t *count)
{
    *count = (size_t)(&lives->told.first_event - &lives->told.first_row) + 1;
    return &lives->told.first_row;
}

static int64_t **event_columns(bc_lives *lives, size_t *count)
{
    *count = (size_t)(&lives->told.event_delay - &lives->told.event) + 1;
    return &lives->told.event;
}

static bool grow(int64_t **columns, size_t count, int64_t *capacity)
{
    const int64_t more = *capacity ? *capacity * 2 : LEAST;
    for (size_t i = 0; i < count; i++) {
        int64_t *grown = realloc(columns[i], (size_t)more * sizeof *grown);
        if (!grown)
            return false;
        columns[i] = grown;
    }
    *capacity = more;
    return true;
}

static void free_columns(int64_t **columns, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(columns[i]);
}

void bc_lives_free(bc_lives *lives)
{
    if (!lives)
        return;
    size_t count;
    int64_t **columns = life_columns(lives, &count);
    free_columns(columns, count);
    columns = event_columns(lives, &count);
    free_columns(columns, count);
    free(lives);
}

void bc_lives_forget(bc_lives *lives)
{
    lives->told.count = lives->told.event_count = 0;
    lives->failed = false;
}

const bc_life_columns *bc_lives_told(const bc_lives *lives)
{
    return &lives->told;
}

/* --- lives ---------------------------------------------------------------------------------------------- */

void bc_lives_begin(bc_lives *lives, int64_t row)
{
    bc_life_columns *told = &lives->told;
    size_t count;
    int64_t **columns = life_columns(lives, &count);
    if (told->count == lives->capacity && !grow(columns, count, &lives->capacity)) {
        lives->failed = true;
        return;
    }
    const int64_t life = told->count++;
    for (size_t i = 0; i < count; i++)
        columns[i][life] = 0;
    told->first_row[life] = told->last_row[life] = row;
    told->full_row[life] = told->end_at[life] = told->first_reserve_at[life] = told->end[life] = -1;
    told->first_event[life] = told->event_count;
    lives->since = -1;
    lives->state = BS_READY;
}

static int64_t microseconds(int64_t nanoseconds)
{
    return nanoseconds < 0 ? -1 : nanoseconds / MICROSECOND;
}

static int64_t *time_in(bc_life_columns *told, int state)
{
    switch (state) {
    case BS_READY:
        return told->in_ready;
    case BS_RESERVED:
        return told->in_reserved;
    case BS_BURIED:
        return told->in_buried;
    default:
        return told->in_delayed;
    }
}

static int state_after(const bc_life_event *event)
{
    switch (event->kind) {
    case BC_RESERVE:
    case BC_TOUCH:
        return BS_RESERVED;
    case BC_BURY:
        return BS_BURIED;
    case BC_DELETE:
    case BC_TRUNCATE:
        return BS_INVALID;
    default:
        return event->delay > 0 ? BS_DELAYED : BS_READY;
    }
}

/* What an event makes of its life. */
static void count_event(bc_lives *lives, const bc_life_event *event, int64_t at)
{
    bc_life_columns *told = &lives->told;
    const int64_t life = bc_lives_last(lives);
    if (lives->since >= 0 && at > lives->since && lives->state != BS_INVALID)
        time_in(told, lives->state)[life] += microseconds(at) - microseconds(lives->since);
    if ((int64_t)event->sure > told->certainty[life])
        told->certainty[life] = (int64_t)event->sure;
    if (event->kind == BC_RESERVE && told->first_reserve_at[life] < 0) {
        told->first_reserve_at[life] = microseconds(at);
        told->first_reserve_sure[life] = (int64_t)event->sure;
    }
    if (event->kind == BC_TOUCH)
        told->touches[life]++;
    if (event->kind == BC_DELETE || event->kind == BC_TRUNCATE) {
        told->end[life] = event->kind;
        told->end_at[life] = microseconds(at);
    }
    told->last_at[life] = microseconds(at);
}

void bc_lives_event(bc_lives *lives, bc_life_event event)
{
    bc_life_columns *told = &lives->told;
    if (lives->failed)
        return;
    size_t count;
    int64_t **columns = event_columns(lives, &count);
    if (told->event_count == lives->event_capacity && !grow(columns, count, &lives->event_capacity)) {
        lives->failed = true;
        return;
    }
    const bool is_early = event.sure == BC_BOUNDED && event.at < lives->since;
    const int64_t at = is_early ? lives->since : event.at;
    const int64_t until = event.until >= 0 && event.until < at ? at : event.until;
    count_event(lives, &event, at);
    const int64_t number = told->event_count++;
    told->event[number] = event.kind;
    told->event_at[number] = microseconds(at);
    told->event_certainty[number] = (int64_t)event.sure;
    told->event_until[number] = event.sure == BC_BOUNDED ? microseconds(until) : -1;
    told->event_priority[number] = event.priority;
    told->event_delay[number] = event.delay;
    if (at > lives->since)
        lives->since = at;
    lives->state = state_after(&event);
}
