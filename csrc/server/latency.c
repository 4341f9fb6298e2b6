#include "server/latency.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/histogram.h"

_Static_assert((int)BS_TIMED == (int)BS_VERBS, "types.h has a histogram for each command");

enum { SMALLEST = 16 };

static void add(bs_timed_list *list, bs_timed timed)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : SMALLEST;
        list->items = bs_must_realloc(list->items, list->capacity, sizeof *list->items);
    }
    list->items[list->count++] = timed;
}

static void move_all(bs_timed_list *from, bs_timed_list *to)
{
    if (to->count == 0) {
        const bs_timed_list empty = *to;
        *to = *from;
        *from = empty;
        return;
    }
    for (size_t i = 0; i < from->count; i++)
        add(to, from->items[i]);
    from->count = 0;
}

static bs_timed_list *list_of(bs_latency *latency, bs_hold hold)
{
    return hold == BS_HOLD_NONE      ? &latency->may_leave
           : hold == BS_HOLD_SYNCING ? &latency->after_sync
                                     : &latency->after_next;
}

/* Appends the counts of this round to the lists. */
static void gather(bs_latency *latency)
{
    for (int hold = BS_HOLD_NONE; hold <= BS_HOLD_WRITTEN; hold++) {
        for (uint32_t verbs = latency->verbs[hold]; verbs; verbs &= verbs - 1) {
            uint32_t verb = (uint32_t)__builtin_ctz(verbs);
            add(list_of(latency, (bs_hold)hold), (bs_timed){latency->round, verb, latency->counts[hold][verb]});
            latency->counts[hold][verb] = 0;
        }
        latency->verbs[hold] = 0;
    }
}

void bs_latency_begin(bs_latency *latency, int64_t mono)
{
    if (mono == latency->round)
        return;
    gather(latency);
    latency->round = mono;
}

/* The hold of the end of the session's output. */
static bs_hold hold_of(const bs_session *session)
{
    size_t length = bs_bytes_length(&session->out);
    return session->may_leave == length    ? BS_HOLD_NONE
           : session->after_sync == length ? BS_HOLD_SYNCING
                                           : BS_HOLD_WRITTEN;
}

void bs_latency_replied(bs_latency *latency, const bs_session *session, uint32_t verb, int64_t since)
{
    if (verb >= BS_UNTIMED)
        return;
    bs_hold hold = hold_of(session);
    if (since == BS_SINCE_NOW || since == latency->round) {
        latency->verbs[hold] |= UINT32_C(1) << verb;
        latency->counts[hold][verb]++;
    } else {
        add(list_of(latency, hold), (bs_timed){since, verb, 1});
    }
}

void bs_latency_sync_started(bs_latency *latency)
{
    gather(latency);
    move_all(&latency->after_next, &latency->after_sync);
}

void bs_latency_sync_ended(bs_latency *latency)
{
    gather(latency);
    move_all(&latency->after_sync, &latency->may_leave);
}

bool bs_latency_pending(const bs_latency *latency)
{
    return latency->verbs[BS_HOLD_NONE] || latency->may_leave.count > 0;
}

void bs_latency_end(bs_latency *latency, int64_t mono)
{
    for (uint32_t verbs = latency->verbs[BS_HOLD_NONE]; verbs; verbs &= verbs - 1) {
        uint32_t verb = (uint32_t)__builtin_ctz(verbs);
        bs_histogram_add(&latency->histograms[verb], mono - latency->round, latency->counts[BS_HOLD_NONE][verb]);
        latency->counts[BS_HOLD_NONE][verb] = 0;
    }
    latency->verbs[BS_HOLD_NONE] = 0;
    for (size_t i = 0; i < latency->may_leave.count; i++) {
        const bs_timed *timed = &latency->may_leave.items[i];
        bs_histogram_add(&latency->histograms[timed->verb], mono - timed->since, timed->count);
    }
    latency->may_leave.count = 0;
}

void bs_latency_free(bs_latency *latency)
{
    free(latency->may_leave.items);
    free(latency->after_sync.items);
    free(latency->after_next.items);
}
