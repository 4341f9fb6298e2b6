#include "queue/waiters.h"

#include <assert.h>

#include "base/clock.h"

void bs_schedule_tube(bs_queue *queue, bs_tube *tube)
{
    int64_t at = bs_heap_first_key(&tube->delayed);
    if (tube->pause_ns && tube->unpause_at < at)
        at = tube->unpause_at;
    if (tube->place == BS_NO_PLACE) {
        if (at != INT64_MAX)
            bs_heap_push(&queue->tube_times, &bs_tube_kind, at, tube);
    } else if (at == INT64_MAX) {
        bs_heap_remove(&queue->tube_times, &bs_tube_kind, tube->place);
    } else if (queue->tube_times.slots[tube->place].key != at) {
        bs_heap_change(&queue->tube_times, &bs_tube_kind, tube->place, at);
    }
}

static int64_t session_time(const bs_session *session)
{
    int64_t at = INT64_MAX;
    if (session->reserved.count)
        at = bs_heap_first_key(&session->reserved) - (session->waiting ? BS_SECOND : 0);
    if (session->waiting && session->reserve_until < at)
        at = session->reserve_until;
    return at;
}

/* A deadline that has moved away keeps its time in the heap (Q4): one useless wake-up is cheaper than a heap operation
 * for each delete. */
void bs_schedule_session(bs_queue *queue, bs_session *session)
{
    int64_t at = session_time(session);
    if (at == INT64_MAX)
        return;
    if (session->place == BS_NO_PLACE)
        bs_heap_push(&queue->session_times, &bs_session_kind, at, session);
    else if (queue->session_times.slots[session->place].key > at)
        bs_heap_change(&queue->session_times, &bs_session_kind, session->place, at);
}

void bs_queue_wait(bs_queue *queue, bs_session *session, int64_t until)
{
    assert(!session->waiting);
    session->waiting = true;
    session->reserve_until = until;
    if (!session->proxy)
        queue->counters->waiting++;
    for (uint32_t i = 0; i < session->watch_count; i++) {
        bs_watch *watch = &session->watches[i];
        bs_tube *tube = watch->tube;
        watch->next = NULL;
        watch->previous = tube->last_waiter;
        *(tube->last_waiter ? &tube->last_waiter->next : &tube->first_waiter) = watch;
        tube->last_waiter = watch;
        tube->waiters++;
    }
    bs_schedule_session(queue, session);
}

void bs_queue_stop_waiting(bs_queue *queue, bs_session *session)
{
    assert(session->waiting);
    session->waiting = false;
    if (!session->proxy)
        queue->counters->waiting--;
    for (uint32_t i = 0; i < session->watch_count; i++) {
        bs_watch *watch = &session->watches[i];
        bs_tube *tube = watch->tube;
        *(watch->previous ? &watch->previous->next : &tube->first_waiter) = watch->next;
        *(watch->next ? &watch->next->previous : &tube->last_waiter) = watch->previous;
        tube->waiters--;
    }
}

bs_session *bs_first_waiter(const bs_queue *queue, const bs_tube *tube)
{
    for (const bs_watch *watch = tube->first_waiter; watch; watch = watch->next)
        if (!watch->session->proxy || !queue->unresponsive[watch->session->peer])
            return watch->session;
    return NULL;
}
