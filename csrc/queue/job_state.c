#include "queue/job_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "binlog_files/entry.h"
#include "queue/job_waits.h"
#include "jobs/expiry.h"
#include "queue/published_heads.h"
#include "queue/throttle.h"

/* --- waiters and times ------------------------------------------------------------------------------------ */

void bs_schedule_tube(bs_queue *queue, bs_tube *tube)
{
    int64_t at = bs_heap_first_key(&tube->delayed);
    if (tube->pause_ns && tube->unpause_at < at)
        at = tube->unpause_at;
    if (tube->expiring.count && tube->expire_at < at)
        at = tube->expire_at;
    if (tube->throttles & BS_THROTTLED_RATE && bs_throttle_token_at(tube) < at)
        at = bs_throttle_token_at(tube);
    if (tube->lingers && tube->paced_until < at)
        at = tube->paced_until;
    if (tube->place == BS_NO_PLACE) {
        if (at != INT64_MAX)
            bs_heap_push(&queue->tube_times, &bs_tube_kind, at, tube);
    } else if (at == INT64_MAX) {
        bs_heap_remove(&queue->tube_times, &bs_tube_kind, tube->place);
    } else if (queue->tube_times.slots[tube->place].key != at) {
        bs_heap_change(&queue->tube_times, &bs_tube_kind, tube->place, at);
    }
}

void bs_schedule_expiry(bs_queue *queue, bs_tube *tube, bs_now now)
{
    /* The wall clock may be set forward, and goes on while the system is suspended. */
    const int64_t longest = 60 * BS_SECOND;
    const int64_t at = bs_expiry_next(tube);
    const int64_t left = at > now.wall ? at - now.wall : 0;
    tube->expire_at = now.mono + (left < longest ? left : longest);
    bs_schedule_tube(queue, tube);
}

void bs_job_set_expiry(bs_queue *queue, const bs_job *job, bs_now now)
{
    bs_expiry_add(job->tube, &queue->jobs, job);
    if (job->tube->expiring.entries[0].id == job->id)
        bs_schedule_expiry(queue, job->tube, now);
}

static int64_t session_time(const bs_session *session)
{
    int64_t at = INT64_MAX;
    const bool waiting = session->waiting && !bs_job_wait_has_ended(session);
    if (session->reserved.count)
        at = bs_heap_first_key(&session->reserved) - (waiting ? BS_SECOND : 0);
    if (waiting && session->reserve_until < at)
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

int bs_queue_wait_for_job(bs_queue *queue, bs_session *session, uint64_t job, bool shared, int64_t until)
{
    assert(!session->waiting);
    const int error = bs_job_wait_add(queue, session, job, shared);
    if (error)
        return error;
    session->waiting = true;
    session->reserve_until = until;
    bs_schedule_session(queue, session);
    return 0;
}

void bs_queue_stop_waiting(bs_queue *queue, bs_session *session)
{
    assert(session->waiting);
    session->waiting = false;
    if (session->waiter) {
        bs_job_wait_remove(queue, session);
        return;
    }
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

/* Returns the first waiter whose worker responds, or NULL. */
static bs_session *first_waiter(const bs_queue *queue, const bs_tube *tube)
{
    for (const bs_watch *watch = tube->first_waiter; watch; watch = watch->next)
        if (!watch->session->proxy || !queue->unresponsive[watch->session->peer])
            return watch->session;
    return NULL;
}

/* --- jobs ------------------------------------------------------------------------------------------------- */

bs_session *bs_job_holder(const bs_queue *queue, const bs_job *job)
{
    return queue->sessions.slots[job->session];
}

/* Returns the tube that has the job in its structures: its own, or `truncated` (Q6). */
static bs_tube *structures_of(const bs_job *job)
{
    return job->truncates == job->tube->ready.truncates ? job->tube : job->tube->truncated;
}

void bs_job_unlink(bs_queue *queue, bs_job *job)
{
    bs_tube *tube = job->tube;
    switch (job->state) {
    case BS_READY:
        bs_ready_remove(&structures_of(job)->ready, &queue->jobs, job);
        bs_head_changed(queue, tube);
        queue->counters->ready--;
        if (job->pri < BS_URGENT_BELOW) {
            structures_of(job)->urgent--;
            queue->counters->urgent--;
        }
        break;
    case BS_DELAYED:
        bs_heap_remove(&structures_of(job)->delayed, &bs_job_kind, job->place);
        queue->counters->delayed--;
        bs_schedule_tube(queue, tube);
        break;
    case BS_BURIED:
        bs_heap_remove(&structures_of(job)->buried, &bs_job_kind, job->place);
        queue->counters->buried--;
        break;
    case BS_RESERVED:
        bs_heap_remove(&bs_job_holder(queue, job)->reserved, &bs_job_kind, job->place);
        tube->reserved--;
        if (tube->policy)
            bs_throttle_unreserved(queue, tube);
        queue->counters->reserved--;
        break;
    default:
        abort();
    }
    job->state = BS_INVALID;
}

/* From the end, because the last reserve of a job decides its position. `in_run` marks ids that were seen; a reserved
 * job does not use it. */
void bs_prune_reserved_ids(bs_queue *queue, bs_session *session)
{
    uint32_t kept = session->id_count;
    for (uint32_t i = session->id_count; i-- > 0;) {
        bs_job *job = bs_job_table_find(&queue->jobs, session->reserved_ids[i]);
        if (!job || job->state != BS_RESERVED || bs_job_holder(queue, job) != session || job->in_run)
            continue;
        job->in_run = 1;
        session->reserved_ids[--kept] = job->id;
    }
    uint32_t count = session->id_count - kept;
    memmove(session->reserved_ids, session->reserved_ids + kept, count * sizeof *session->reserved_ids);
    session->id_count = count;
    for (uint32_t i = 0; i < count; i++)
        bs_job_table_find(&queue->jobs, session->reserved_ids[i])->in_run = 0;
}

static void add_reserved_id(bs_queue *queue, bs_session *session, const bs_job *job)
{
    enum { SMALLEST = 16 };
    if (session->id_count == session->id_capacity) {
        if (session->id_count > 0)
            bs_prune_reserved_ids(queue, session);
        if (session->id_count >= session->id_capacity / 2) {
            session->id_capacity = session->id_capacity ? session->id_capacity * 2 : SMALLEST;
            session->reserved_ids =
                bs_must_realloc(session->reserved_ids, session->id_capacity, sizeof *session->reserved_ids);
        }
    }
    session->reserved_ids[session->id_count++] = job->id;
}

void bs_job_count_reserve(bs_queue *queue, const bs_job *job, int64_t since, bs_now now)
{
    job->tube->reserves++;
    if (since != BS_NEVER_READY)
        bs_histogram_add(&queue->counters->in_queue, now.wall - since, 1);
}

void bs_job_make_reserved(bs_queue *queue, bs_session *session, bs_job *job, bs_now now)
{
    if (!session->claiming)
        bs_job_count_reserve(queue, job, job->state == BS_READY ? job->at : BS_NEVER_READY, now);
    bs_job_unlink(queue, job);
    job->state = BS_RESERVED;
    job->session = bs_session_slot(session);
    job->at = now.mono + (int64_t)job->ttr * BS_SECOND;
    job->reserves++;
    job->reserve_written = 1;
    add_reserved_id(queue, session, job);
    bs_heap_push(&session->reserved, &bs_job_kind, job->at, job);
    job->tube->reserved++;
    if (job->tube->policy) {
        bs_throttle_reserved(queue, job->tube, now);
        bs_schedule_tube(queue, job->tube);
    }
    queue->counters->reserved++;
    if (!session->claiming)
        bs_binlog_reserved(queue->binlog, job);
    bs_job_table_prefetch(&queue->jobs, job->id); /* most jobs are deleted next */
    bs_schedule_session(queue, session);
}

void bs_job_hold(bs_queue *queue, bs_session *session, bs_job *job, int64_t at, bs_now now)
{
    bs_tube *tube = job->tube;
    const bool claiming = session->claiming;
    const int64_t paced_until = tube->paced_until;
    session->claiming = true; /* nothing is counted or written */
    bs_job_make_reserved(queue, session, job, now);
    session->claiming = claiming;
    job->reserves--;
    if (tube->paced_until != paced_until) { /* it took a token */
        bs_throttle_return_token(queue, tube, now);
        bs_schedule_tube(queue, tube);
    }
    job->at = at;
    bs_heap_change(&session->reserved, &bs_job_kind, job->place, at);
    bs_schedule_session(queue, session);
}

void bs_serve_waiters(bs_queue *queue, bs_tube *tube, bs_now now)
{
    /* A claimed job may be put back, so no later job is handed out before. */
    while (tube->first_waiter && bs_tube_is_open(tube) && !tube->pending_claims) {
        bs_job *job = bs_ready_first(&tube->ready);
        bs_session *session = job ? first_waiter(queue, tube) : NULL;
        if (!session)
            return;
        if (!bs_job_load(queue, job, now))
            continue;
        bs_queue_stop_waiting(queue, session);
        bs_job_make_reserved(queue, session, job, now);
        queue->served(queue->context, session, BS_SERVED_JOB, job, now);
    }
}

void bs_job_make_ready(bs_queue *queue, bs_job *job, bs_now now)
{
    job->state = BS_READY;
    job->at = now.wall;
    bs_ready_add(&job->tube->ready, job);
    bs_head_changed(queue, job->tube);
    queue->counters->ready++;
    if (job->pri < BS_URGENT_BELOW) {
        job->tube->urgent++;
        queue->counters->urgent++;
    }
    bs_serve_waiters(queue, job->tube, now);
}

void bs_job_make_delayed(bs_queue *queue, bs_job *job)
{
    job->state = BS_DELAYED;
    job->truncates = job->tube->ready.truncates;
    bs_heap_push(&job->tube->delayed, &bs_job_kind, job->at, job);
    queue->counters->delayed++;
    bs_schedule_tube(queue, job->tube);
}

void bs_job_make_buried(bs_queue *queue, bs_job *job)
{
    job->state = BS_BURIED;
    job->truncates = job->tube->ready.truncates;
    bs_heap_push(&job->tube->buried, &bs_job_kind, ++queue->buried_sequence, job);
    queue->counters->buried++;
}

void bs_job_bury(bs_queue *queue, bs_job *job, bs_now now)
{
    const bool space = bs_binlog_reserve_space(queue->binlog, now);
    const uint32_t reserve_age = bs_binlog_reserve_age(queue->binlog, job, now);
    bs_job_unlink(queue, job);
    job->buries++;
    job->state = BS_BURIED;
    job->at = now.wall;
    if (now.wall <= queue->last_buried_at)
        job->at = queue->last_buried_at < BS_TIME_LAST ? queue->last_buried_at + 1 : BS_TIME_LAST;
    queue->last_buried_at = job->at;
    if (space)
        bs_binlog_update(queue->binlog, job, reserve_age, now);
    bs_job_make_buried(queue, job);
    bs_job_waits_notify(queue, job->id, BS_SERVED_BURIED);
}

static void pause_for_retry(bs_queue *queue, bs_tube *tube, bs_now now)
{
    if (tube->pause_ns)
        return;
    tube->pause_ns = BS_SECOND;
    tube->unpause_at = now.mono + tube->pause_ns;
    bs_head_changed(queue, tube);
    bs_schedule_tube(queue, tube);
}

bool bs_job_load(bs_queue *queue, bs_job *job, bs_now now)
{
    const int error = bs_job_has_body(job) ? 0 : bs_body_load(queue->binlog, job);
    if (error == BS_BODY_DAMAGED)
        bs_job_bury(queue, job, now);
    else if (error)
        pause_for_retry(queue, job->tube, now);
    return !error;
}
