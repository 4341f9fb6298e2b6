/* Parses the property `timeline` of messages, as csrc/history/timeline.c writes it: events separated by ; with
 * KIND@NANOSECONDS (? for an unknown time) and further fields after commas; ...N for N omitted events. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "columns/job_histories.h"

static const char *const names[BC_EVENTS] = {
    [BC_PUT] = "put",                 [BC_RESERVE] = "reserve", [BC_TOUCH] = "touch",       [BC_RELEASE] = "release",
    [BC_TIMEOUT] = "timeout",         [BC_RETURN] = "return",   [BC_DUE] = "due",           [BC_BURY] = "bury",
    [BC_KICK] = "kick",               [BC_DELETE] = "delete",   [BC_TRUNCATE] = "truncate", [BC_EXPIRE] = "expire",
    [BC_DEAD_LETTER] = "dead-letter", [BC_DISCARD] = "discard", [BC_MOVE] = "move",
};

typedef struct {
    const char *at;
    const char *end;
} text;

static bool takes(text *rest, const char *word)
{
    const size_t length = strlen(word);
    if ((size_t)(rest->end - rest->at) < length || memcmp(rest->at, word, length) != 0)
        return false;
    rest->at += length;
    return true;
}

static bool take_number(text *rest, int64_t *number)
{
    enum { DIGITS_MAX = 18, TEN = 10 }; /* a time in nanoseconds may have one more */
    const char *first = rest->at;
    uint64_t value = 0;
    while (rest->at < rest->end && *rest->at >= '0' && *rest->at <= '9' && rest->at - first <= DIGITS_MAX)
        value = value * TEN + (uint64_t)(*rest->at++ - '0');
    *number = (int64_t)value;
    return rest->at > first && value <= INT64_MAX;
}

static bool take_kind(text *rest, int *kind)
{
    for (int each = 0; each < BC_EVENTS; each++) {
        text ahead = *rest;
        if (takes(&ahead, names[each]) && takes(&ahead, "@")) {
            *kind = each;
            *rest = ahead;
            return true;
        }
    }
    return false;
}

static bool take_event(text *rest, bc_event *event)
{
    *event = (bc_event){.until = -1, .priority = -1, .delay = -1};
    if (!take_kind(rest, &event->kind))
        return false;
    if (takes(rest, "?"))
        event->certainty = BC_BOUNDED;
    else if (!take_number(rest, &event->at))
        return false;
    else if (event->kind == BC_DUE)
        event->certainty = BC_DERIVED; /* from the delay */
    if (takes(rest, ",pri=") && !take_number(rest, &event->priority))
        return false;
    if (takes(rest, ",delay=") && !take_number(rest, &event->delay))
        return false;
    if (event->delay < 0 && (event->kind == BC_PUT || event->kind == BC_RELEASE))
        event->delay = 0;
    return rest->at == rest->end || *rest->at == ';';
}

/* Adds the events of a text. Returns false at the first invalid one. */
static bool add_text(bc_histories *histories, text rest, int ended)
{
    bc_event event;
    for (bool first = true; first || takes(&rest, ";"); first = false) {
        int64_t omitted;
        if (takes(&rest, "...")) {
            if (!take_number(&rest, &omitted))
                return false;
            bc_histories_set_states(histories, BC_ANY);
            continue;
        }
        if (!take_event(&rest, &event) || first != (event.kind == BC_PUT))
            return false;
        if (event.kind == BC_DELETE)
            event.kind += ended;
        bc_histories_add_event(histories, event);
    }
    return rest.at == rest.end;
}

int bc_histories_of_timelines(bc_histories *histories, const char *data, const int32_t *ends, const uint8_t *ended,
                              int64_t rows)
{
    bc_histories_clear(histories);
    for (int64_t row = 0; row < rows; row++) {
        const text whole = {data + ends[row], data + ends[row + 1]};
        bc_histories_begin(histories, row);
        if (histories->failed)
            return -ENOMEM;
        const bool complete = add_text(histories, whole, ended[row]);
        histories->columns.complete[bc_histories_current(histories)] = complete;
        if (!complete)
            bc_histories_set_states(histories, BC_ANY);
        bc_histories_finish(histories);
        if (histories->failed)
            return -ENOMEM;
    }
    return 0;
}
