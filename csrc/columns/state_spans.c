/* Computes the possible states of a job at each time from its events and their bounds.
 *
 * At any time some events have certainly happened, and some later ones may have. The job then has one of the states
 * after the last certain event, or after one of the possible ones.
 */

#include "columns/job_histories.h"

/* The events of the current history. */
typedef struct {
    bc_histories *histories;
    const bc_history_columns *columns;
    int64_t history;
    int64_t first;
    int64_t end;
} history_events;

/* Returns the latest possible time of an event, INT64_MAX if unknown. */
static int64_t latest(const bc_history_columns *columns, int64_t event)
{
    if (columns->event_certainty[event] != BC_BOUNDED)
        return columns->event_at[event];
    return columns->event_until[event] < 0 ? INT64_MAX : columns->event_until[event];
}

/* An event was not later than the next one. */
static void tighten_bounds(const history_events *events)
{
    int64_t before = INT64_MAX;
    for (int64_t event = events->end - 1; event >= events->first; event--) {
        const int64_t at = events->columns->event_at[event];
        const int64_t own = latest(events->columns, event);
        before = own < before ? own : before;
        before = before < at ? at : before;
        if (events->columns->event_certainty[event] == BC_BOUNDED && before != INT64_MAX)
            events->columns->event_until[event] = before;
    }
}

static int state_of(int64_t states)
{
    for (int state = BS_INVALID; state <= BS_DELAYED; state++) {
        if (states == 1 << state)
            return state;
    }
    return states == BC_EITHER ? BC_READY_OR_RESERVED : BC_UNKNOWN;
}

/* Adds time, -1 if it has no bound, to a total of the history. The total becomes unknown if the job may also have been
 * in another state. */
static void add_time(int64_t *total, int64_t states, int64_t counted, int64_t time)
{
    if (*total >= 0 && time != 0 && states & counted)
        *total = time < 0 || states & ~counted ? -1 : *total + time;
}

static void add_times(const history_events *events, int64_t states, int64_t time)
{
    for (int state = BS_READY; state <= BS_DELAYED; state++)
        add_time(&events->columns->in_state[state - 1][events->history], states, 1 << state, time);
    add_time(&events->columns->in_state[BC_READY_OR_RESERVED - 1][events->history], states, BC_EITHER, time);
}

static void add_spans(const history_events *events)
{
    const bc_history_columns *columns = events->columns;
    int64_t certain = events->first - 1;  /* the last event that has certainly happened */
    int64_t possible = events->first - 1; /* the last one that may have */
    const int64_t last_at = columns->event_at[events->end - 1];
    int64_t states = 0, since = -1;
    int last_state = -1;
    while (certain < events->end - 1) {
        int64_t now = latest(columns, certain + 1);
        if (possible < events->end - 1 && columns->event_at[possible + 1] < now)
            now = columns->event_at[possible + 1];
        if (now == INT64_MAX)
            break;
        now = now < since ? since : now;
        /* Totals end with the last event. */
        add_times(events, states, now > since && since >= last_at ? -1 : now - since);
        while (possible < events->end - 1 && columns->event_at[possible + 1] <= now)
            possible++;
        while (certain < possible && latest(columns, certain + 1) <= now)
            certain++;
        states = 0;
        for (int64_t event = certain < events->first ? events->first : certain; event <= possible; event++)
            states |= columns->event_states[event];
        if (state_of(states) != last_state)
            bc_histories_add_span(events->histories, now, last_state = state_of(states));
        since = now;
    }
    if (certain < events->end - 1)
        add_times(events, states, -1);
}

/* Sets the bounds of the first reserve. It may be one of omitted events. */
static void set_first_reserve(const history_events *events)
{
    const bc_history_columns *columns = events->columns;
    int64_t omitted_at = -1;
    for (int64_t event = events->first; event < events->end; event++) {
        if (columns->event[event] == BC_RESERVE) {
            const int64_t until = latest(columns, event);
            columns->first_reserve_at[events->history] = omitted_at < 0 ? columns->event_at[event] : omitted_at;
            columns->first_reserve_until[events->history] = until == INT64_MAX ? -1 : until;
            return;
        }
        if (columns->event_states[event] == BC_ANY && omitted_at < 0)
            omitted_at = columns->event_at[event];
    }
}

void bc_histories_finish(bc_histories *histories)
{
    if (histories->failed)
        return; /* perhaps without any history */
    const bc_history_columns *columns = &histories->columns;
    const int64_t history = bc_histories_current(histories);
    const history_events events = {histories, columns, history, columns->first_event[history], columns->event_count};
    if (events.first == events.end) {
        for (int state = 0; state < BC_READY_OR_RESERVED; state++)
            columns->in_state[state][history] = -1;
        return;
    }
    tighten_bounds(&events);
    add_spans(&events);
    set_first_reserve(&events);
    const int64_t last = events.end - 1;
    columns->state[history] = state_of(columns->event_states[last]);
    if (columns->end[history] >= 0) {
        const int64_t until = latest(columns, last);
        columns->end_at[history] = columns->event_at[last];
        columns->end_until[history] = until == INT64_MAX ? -1 : until;
    }
}
