#include "server/latency.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/histogram.h"

static void add(bs_timed_list *list, bs_timed timed)
{
    list->items = bs_must_grow_u32(list->items, list->count, &list->capacity, sizeof *list->items);
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
    for (uint32_t i = 0; i < from->count; i++)
        add(to, from->items[i]);
    from->count = 0;
}

/* Appends the counts of this round to the lists. */
static void gather(bs_latency *latency)
{
    for (int hold = BS_HOLD_NONE; hold <= BS_HOLD_WRITTEN; hold++) {
        for (uint32_t verbs = latency->verbs[hold]; verbs; verbs &= verbs - 1) {
            uint32_t verb = (uint32_t)__builtin_ctz(verbs);
            add(&latency->lists[hold], (bs_timed){latency->round, verb, latency->counts[hold][verb]});
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

void bs_latency_replied(bs_latency *latency, const bs_session *session, uint32_t verb, int64_t since)
{
    if (verb >= BS_UNTIMED)
        return;
    const bs_hold hold = bs_session_hold(session);
    if (since == BS_SINCE_NOW || since == latency->round) {
        latency->verbs[hold] |= UINT32_C(1) << verb;
        latency->counts[hold][verb]++;
    } else {
        add(&latency->lists[hold], (bs_timed){since, verb, 1});
    }
}

void bs_latency_sync_started(bs_latency *latency)
{
    gather(latency);
    move_all(&latency->lists[BS_HOLD_WRITTEN], &latency->lists[BS_HOLD_SYNCING]);
}

void bs_latency_sync_ended(bs_latency *latency)
{
    gather(latency);
    move_all(&latency->lists[BS_HOLD_SYNCING], &latency->lists[BS_HOLD_NONE]);
}

bool bs_latency_pending(const bs_latency *latency)
{
    return latency->verbs[BS_HOLD_NONE] || latency->lists[BS_HOLD_NONE].count > 0;
}

void bs_latency_end(bs_latency *latency, int64_t mono)
{
    bs_timed_list *may_leave = &latency->lists[BS_HOLD_NONE];
    gather(latency);
    for (uint32_t i = 0; i < may_leave->count; i++) {
        const bs_timed *timed = &may_leave->items[i];
        bs_histogram_add(&latency->histograms[timed->verb], mono - timed->since, timed->count);
    }
    may_leave->count = 0;
}

void bs_latency_free(bs_latency *latency)
{
    for (int hold = BS_HOLD_NONE; hold <= BS_HOLD_WRITTEN; hold++)
        free(latency->lists[hold].items);
}
