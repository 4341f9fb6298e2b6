#include "columns/job_histories.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "jobs/job.h"

enum { LEAST = 4096 };

bc_histories *bc_histories_new(void)
{
    return calloc(1, sizeof(bc_histories));
}

/* --- memory --------------------------------------------------------------------------------------------- */

/* Each group of columns is consecutive in the structure. */
enum {
    HISTORY_COLUMNS =
        (offsetof(bc_history_columns, first_event) - offsetof(bc_history_columns, first_row)) / sizeof(int64_t *) + 1,
    EVENT_COLUMNS =
        (offsetof(bc_history_columns, event_delay) - offsetof(bc_history_columns, event)) / sizeof(int64_t *) + 1,
    SPAN_COLUMNS = 2
};

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

/* Makes space for one more value in each of the columns. Returns false after the first lack of memory. */
static bool make_space(bc_histories *histories, int64_t used, int64_t **columns, size_t count, int64_t *capacity)
{
    if (!histories->failed && used == *capacity)
        histories->failed = !grow(columns, count, capacity);
    return !histories->failed;
}

static void free_columns(int64_t **columns, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(columns[i]);
}

void bc_histories_free(bc_histories *histories)
{
    if (!histories)
        return;
    free_columns(&histories->columns.first_row, HISTORY_COLUMNS);
    free_columns(&histories->columns.event, EVENT_COLUMNS);
    free_columns(&histories->columns.span_at, SPAN_COLUMNS);
    free(histories);
}

void bc_histories_clear(bc_histories *histories)
{
    histories->columns.count = histories->columns.event_count = histories->columns.span_count = 0;
    histories->failed = false;
}

const bc_history_columns *bc_histories_columns(const bc_histories *histories)
{
    return &histories->columns;
}

/* --- histories ---------------------------------------------------------------------------------------------- */

void bc_histories_begin(bc_histories *histories, int64_t row)
{
    bc_history_columns *out = &histories->columns;
    int64_t **columns = &out->first_row;
    if (!make_space(histories, out->count, columns, HISTORY_COLUMNS, &histories->capacity))
        return;
    const int64_t history = out->count++;
    for (size_t i = 0; i < HISTORY_COLUMNS; i++)
        columns[i][history] = 0;
    out->first_row[history] = out->last_row[history] = row;
    out->full_row[history] = out->end_at[history] = out->end_until[history] = out->end[history] = -1;
    out->first_reserve_at[history] = out->first_reserve_until[history] = -1;
    out->first_event[history] = out->event_count;
    out->first_span[history] = out->span_count;
    histories->since = -1;
    histories->state = BS_READY;
}

static int64_t microseconds(int64_t nanoseconds)
{
    return nanoseconds < 0 ? -1 : nanoseconds / BS_MICROSECOND;
}

static void update_history(bc_histories *histories, const bc_event *event, int64_t at)
{
    bc_history_columns *out = &histories->columns;
    const int64_t history = bc_histories_current(histories);
    if ((int64_t)event->certainty > out->certainty[history])
        out->certainty[history] = (int64_t)event->certainty;
    if (event->kind == BC_TOUCH)
        out->touches[history]++;
    if (event->kind >= BC_DELETE)
        out->end[history] = event->kind;
    out->last_at[history] = microseconds(at);
}

/* States after events without a delay. */
static const int states_after[BC_EVENTS] = {
    [BC_PUT] = BS_READY,           [BC_RESERVE] = BS_RESERVED, [BC_TOUCH] = BS_RESERVED,   [BC_RELEASE] = BS_READY,
    [BC_TIMEOUT] = BS_READY,       [BC_RETURN] = BS_READY,     [BC_DUE] = BS_READY,        [BC_BURY] = BS_BURIED,
    [BC_KICK] = BS_READY,          [BC_DELETE] = BS_INVALID,   [BC_TRUNCATE] = BS_INVALID, [BC_EXPIRE] = BS_INVALID,
    [BC_DEAD_LETTER] = BS_INVALID, [BC_DISCARD] = BS_INVALID,  [BC_MOVE] = BS_INVALID,
};

void bc_histories_add_event(bc_histories *histories, bc_event event)
{
    bc_history_columns *out = &histories->columns;
    if (!make_space(histories, out->event_count, &out->event, EVENT_COLUMNS, &histories->event_capacity))
        return;
    const bool is_early = event.certainty == BC_BOUNDED && event.at < histories->since;
    const int64_t at = is_early ? histories->since : event.at;
    const int64_t until = event.until >= 0 && event.until < at ? at : event.until;
    update_history(histories, &event, at);
    const int64_t number = out->event_count++;
    out->event[number] = event.kind;
    out->event_at[number] = microseconds(at);
    out->event_certainty[number] = (int64_t)event.certainty;
    out->event_until[number] = event.certainty == BC_BOUNDED ? microseconds(until) : -1;
    out->event_priority[number] = event.priority;
    out->event_delay[number] = event.delay;
    if (at > histories->since)
        histories->since = at;
    const int state = states_after[event.kind];
    histories->state = state == BS_READY && event.delay > 0 ? BS_DELAYED : state;
    bc_histories_set_states(histories, 1 << histories->state);
}

void bc_histories_set_states(bc_histories *histories, int states)
{
    bc_history_columns *out = &histories->columns;
    if (!histories->failed && out->event_count > out->first_event[bc_histories_current(histories)])
        out->event_states[out->event_count - 1] = states;
}

void bc_histories_add_span(bc_histories *histories, int64_t at, int state)
{
    bc_history_columns *out = &histories->columns;
    if (!make_space(histories, out->span_count, &out->span_at, SPAN_COLUMNS, &histories->span_capacity))
        return;
    out->span_at[out->span_count] = at;
    out->span_state[out->span_count++] = state;
}
