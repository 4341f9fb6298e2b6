#include "queue/queue.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "jobs/expiry.h"
#include "jobs/job_owners.h"
#include "queue/job_state.h"
#include "queue/job_waits.h"
#include "queue/published_heads.h"
#include "queue/throttle.h"
#include "queue/tube_policies.h"
#include "queue/tube_refs.h"

/* --- life ------------------------------------------------------------------------------------------------- */

int bs_queue_init(bs_queue *queue)
{
    bs_key_secret secret;
    if (getrandom(&secret, sizeof secret, 0) != (ssize_t)sizeof secret)
        return -errno;
    queue->key_holders.secret = queue->ended_keys.by_key.secret = secret;
    queue->default_tube = bs_refs_tube(queue, "default", 7);
    uint64_t no_number = 0;
    queue->no_tube = bs_tubes_get(&queue->remote_tubes, "-", 1, &no_number);
    if (!queue->default_tube || !queue->no_tube)
        return -ENOMEM;
    queue->default_tube->number = 0; /* it precedes all others, whichever worker starts first */
    queue->no_tube->remote = true;
    for (uint32_t shard = 0; shard < BS_MAX_WORKERS; shard++)
        queue->adopted[shard] = BS_ADOPTED_UNKNOWN;
    return 0;
}

void bs_queue_free(bs_queue *queue)
{
    for (size_t i = 0; i < queue->jobs.capacity; i++)
        bs_job_free(queue->jobs.slots[i]);
    bs_job_table_free(&queue->jobs);
    bs_key_table_free(&queue->key_holders);
    bs_ended_free(&queue->ended_keys);
    bs_job_waits_free(queue);
    bs_queue_free_moves(queue);
    bs_sessions_free(&queue->sessions);
    bs_tubes_free(&queue->tubes);
    bs_tubes_free(&queue->remote_tubes);
    bs_heap_free(&queue->tube_times);
    bs_heap_free(&queue->session_times);
    bs_policies_free(queue->policies);
}

/* --- sessions --------------------------------------------------------------------------------------------- */

/* For a reserved job that no client command releases: its entry is deferred. */
static void release_deferred(bs_queue *queue, bs_job *job, bool timed_out, bs_now now)
{
    const bs_policy *policy = job->tube->policy;
    if ((policy || job->has_attributes) && bs_policy_end_job(queue, job, now))
        return;
    const uint32_t reserve_age = bs_binlog_reserve_age(queue->binlog, job, now);
    bs_job_unlink(queue, job);
    if (timed_out && policy && policy->backoff) {
        job->delay = bs_policy_backoff(queue, job);
        job->state = BS_DELAYED;
        job->at = now.mono + (int64_t)job->delay * BS_SECOND;
        bs_binlog_append_counters(queue->binlog, job, reserve_age, now);
        bs_job_make_delayed(queue, job);
        bs_serve_throttled(queue, job->tube, now);
        return;
    }
    job->state = BS_READY;
    job->at = now.wall;
    if (policy && (policy->max_reserves || policy->backoff))
        bs_binlog_append_counters(queue->binlog, job, reserve_age, now);
    else
        bs_binlog_append_deferred(queue->binlog, job, reserve_age, now);
    bs_job_make_ready(queue, job, now);
}

void bs_queue_return(bs_queue *queue, bs_job *job, bs_now now)
{
    release_deferred(queue, job, false, now);
}

/* In the order of reserving, as in C beanstalkd: a waiting client gets the first. */
static void release_jobs(bs_queue *queue, bs_session *session, bs_now now)
{
    if (session->reserved.count == 0)
        return;
    bs_prune_reserved_ids(queue, session);
    for (uint32_t i = 0; i < session->id_count; i++) {
        bs_job *job = bs_job_table_find(&queue->jobs, session->reserved_ids[i]);
        release_deferred(queue, job, false, now);
    }
    assert(session->reserved.count == 0);
}

void bs_queue_close(bs_queue *queue, bs_session *session, bs_now now)
{
    if (session->waiting)
        bs_queue_stop_waiting(queue, session);
    release_jobs(queue, session, now);
    if (session->incoming)
        bs_queue_drop_job(queue, session->incoming);
    session->incoming = NULL;
    bs_refs_end(queue, session);
    if (session->place != BS_NO_PLACE)
        bs_heap_remove(&queue->session_times, &bs_session_kind, session->place);
    if (!session->proxy) {
        queue->counters->connections--;
        if (session->moved)
            queue->counters->moved_out++;
        else
            queue->counters->closed_connections++;
    }
    if (session->producer)
        queue->counters->producers--;
    if (session->worker)
        queue->counters->workers--;
    bs_sessions_close(&queue->sessions, session);
}

void bs_queue_count_worker(bs_queue *queue, bs_session *session)
{
    if (session->worker || session->proxy)
        return;
    queue->counters->workers++;
    session->worker = true;
}

int bs_queue_pause(bs_queue *queue, const char *name, size_t length, uint32_t seconds, bs_now now)
{
    bs_tube *tube = bs_tubes_find(&queue->tubes, name, length);
    if (!tube)
        return -ENOENT;
    tube->pause_ns = (int64_t)seconds * BS_SECOND;
    tube->unpause_at = now.mono + tube->pause_ns;
    tube->pauses++;
    bs_head_changed(queue, tube);
    bs_schedule_tube(queue, tube);
    bs_serve_waiters(queue, tube, now); /* a pause of 0 s ends now */
    return 0;
}

/* --- starting --------------------------------------------------------------------------------------------- */

/* Reserves a job again until a time, for no client in particular. Without memory it stays ready. */
static void keep_reserved(bs_queue *queue, bs_job *job, int64_t at, bs_now now)
{
    if (!queue->former)
        queue->former = bs_refs_open_proxy(queue);
    if (!queue->former)
        return;
    queue->former->peer = (uint8_t)queue->shard;
    bs_job_hold(queue, queue->former, job, at, now);
}

void bs_queue_restore(bs_queue *queue, bs_job *job, bs_now now)
{
    job->place = BS_NO_PLACE;
    /* After a start, tubes are in the order of their first jobs. */
    if (job->id < job->tube->number)
        job->tube->number = job->id;
    if (queue->workers > 1)
        bs_owner_set(queue->shared, job->id, queue->shard);
    if (bs_job_has_key(job) && bs_unique_add(&queue->key_holders, job) != 0)
        abort();
    if (bs_expiry_of(job))
        bs_job_set_expiry(queue, job, now);
    if (job->state == BS_BURIED) {
        if (job->at > queue->last_buried_at)
            queue->last_buried_at = job->at;
        bs_job_make_buried(queue, job);
    } else if (job->state == BS_DELAYED && job->at > now.mono) {
        bs_job_make_delayed(queue, job);
    } else {
        const int64_t at = job->at;
        const bool was_ready = job->state == BS_READY;
        const bool is_kept = job->state == BS_RESERVED && at > now.mono;
        bs_job_make_ready(queue, job, now);
        if (is_kept)
            keep_reserved(queue, job, at, now);
        else if (was_ready)
            job->at = at;
    }
}

/* --- reserving -------------------------------------------------------------------------------------------- */

bs_job *bs_queue_best_job(const bs_session *session)
{
    bs_job *best = NULL;
    for (uint32_t i = 0; i < session->watch_count; i++) {
        const bs_tube *tube = session->watches[i].tube;
        bs_job *first = bs_tube_is_open(tube) ? bs_ready_first(&tube->ready) : NULL;
        if (first && (!best || bs_job_before(first, best)))
            best = first;
    }
    return best;
}

bs_job *bs_queue_best_loaded(bs_queue *queue, const bs_session *session, bs_now now)
{
    bs_job *best;
    while ((best = bs_queue_best_job(session)) && !bs_job_load(queue, best, now))
        continue;
    return best;
}

bs_job *bs_queue_reserve(bs_queue *queue, bs_session *session, bs_now now)
{
    bs_job *best = bs_queue_best_loaded(queue, session, now);
    if (best)
        bs_job_make_reserved(queue, session, best, now);
    return best;
}

bool bs_queue_deadline_soon(const bs_session *session, bs_now now)
{
    return session->reserved.count && bs_heap_first_key(&session->reserved) - BS_SECOND <= now.mono;
}

bool bs_queue_any_ready(const bs_session *session)
{
    for (uint32_t i = 0; i < session->watch_count; i++)
        if (!session->watches[i].tube->throttles && bs_ready_count(&session->watches[i].tube->ready))
            return true;
    return false;
}

/* --- jobs ------------------------------------------------------------------------------------------------- */

/* Every session holds the jobs of `former`. */
static bool holds(const bs_queue *queue, const bs_session *session, const bs_job *job)
{
    if (!job || job->state != BS_RESERVED)
        return false;
    const bs_session *holder = bs_job_holder(queue, job);
    return holder == session || holder == queue->former;
}

bool bs_queue_may_end(const bs_queue *queue, const bs_session *session, const bs_job *job)
{
    return job && (job->state != BS_RESERVED || holds(queue, session, job));
}

int bs_queue_reserve_job(bs_queue *queue, bs_session *session, bs_job *job, bs_now now)
{
    if (!job || job->state == BS_RESERVED)
        return -ENOENT;
    bs_job_make_reserved(queue, session, job, now);
    return 0;
}

int bs_queue_delete(bs_queue *queue, bs_session *session, bs_job *job, bs_now now)
{
    if (!bs_queue_may_end(queue, session, job))
        return -ENOENT;
    bs_tube *tube = job->tube;
    tube->deletes++; /* first, because the tube may end with its last job */
    const int error = bs_queue_remove(queue, job, BS_ENDED_DELETED, now);
    if (error)
        tube->deletes--;
    return error;
}

int bs_queue_truncate_begin(bs_queue *queue, bs_tube *tube)
{
    assert(!tube->truncated);
    if (!bs_binlog_can_delete_all(queue->binlog))
        return -ENOSPC;
    bs_tube *truncated = calloc(1, sizeof *truncated);
    if (!truncated)
        return -ENOMEM;
    truncated->ready = tube->ready;
    truncated->delayed = tube->delayed;
    truncated->buried = tube->buried;
    truncated->urgent = tube->urgent;
    /* Nothing is added, and copies to shrink them would hold up other clients. */
    truncated->ready.heap.capacity = truncated->delayed.capacity = truncated->buried.capacity = 0;
    tube->ready = (bs_ready){.truncates = truncated->ready.truncates + 1};
    tube->delayed = tube->buried = (bs_heap){0};
    tube->urgent = 0;
    tube->truncated = truncated;
    bs_head_changed(queue, tube);
    bs_schedule_tube(queue, tube);
    return 0;
}

static bs_job *any_truncated(const bs_tube *tube)
{
    return bs_tube_any_job(tube->truncated, 1U << BS_READY | 1U << BS_DELAYED | 1U << BS_BURIED);
}

uint32_t bs_queue_truncate_step(bs_queue *queue, bs_tube *tube, uint32_t most, bs_now now)
{
    uint32_t deleted = 0;
    bs_job *job = any_truncated(tube);
    /* There is space since the begin, so a delete fails only if the binlog has failed. */
    while (job && deleted < most && bs_queue_remove(queue, job, BS_ENDED_TRUNCATED, now) == 0) {
        deleted++;
        job = any_truncated(tube);
    }
    if (!job) {
        bs_tube_free(tube->truncated);
        tube->truncated = NULL;
    }
    return deleted;
}

static void write_ready(bs_queue *queue, bs_job *job, uint32_t reserve_age, bs_now now)
{
    job->state = BS_READY;
    job->at = now.wall;
    bs_binlog_update(queue->binlog, job, reserve_age, now);
    bs_job_make_ready(queue, job, now);
}

int bs_queue_release(bs_queue *queue, bs_session *session, bs_job *job, uint32_t pri, uint32_t delay, bs_now now)
{
    if (!holds(queue, session, job))
        return -ENOENT;
    if (job->tube->policy)
        delay = bs_policy_delay(queue, job->tube->policy, delay);
    if ((job->tube->policy || job->has_attributes) && bs_policy_ends(job, now)) {
        job->pri = pri;
        job->releases++;
        (void)bs_policy_end_job(queue, job, now);
        return 0;
    }
    if (!bs_binlog_reserve_space(queue->binlog, now))
        return -ENOSPC;
    if (!delay && job->tube->policy && job->tube->policy->backoff)
        delay = bs_policy_backoff(queue, job);
    const uint32_t reserve_age = bs_binlog_reserve_age(queue->binlog, job, now);
    bs_job_unlink(queue, job);
    job->pri = pri;
    job->delay = delay;
    job->releases++;
    if (delay) {
        job->state = BS_DELAYED;
        job->at = now.mono + (int64_t)delay * BS_SECOND;
        bs_binlog_update(queue->binlog, job, reserve_age, now);
        bs_job_make_delayed(queue, job);
        bs_serve_throttled(queue, job->tube, now);
    } else {
        write_ready(queue, job, reserve_age, now);
    }
    return 0;
}

int bs_queue_bury(bs_queue *queue, bs_session *session, bs_job *job, uint32_t pri, bs_now now)
{
    if (!holds(queue, session, job))
        return -ENOENT;
    if (!bs_binlog_reserve_space(queue->binlog, now))
        return -ENOSPC;
    job->pri = pri;
    bs_job_bury(queue, job, now);
    bs_serve_throttled(queue, job->tube, now);
    return 0;
}

int bs_queue_touch(bs_queue *queue, bs_session *session, bs_job *job, bs_now now)
{
    if (!holds(queue, session, job))
        return -ENOENT;
    const bool is_kept = bs_job_holder(queue, job) != session;
    if (is_kept)
        bs_job_hold(queue, session, job, job->at, now);
    if (bs_binlog_reserve_age(queue->binlog, job, now))
        bs_binlog_append_deferred(queue->binlog, job, 0, now); /* of its reserve, which the deadline still determines */
    job->at = now.mono + (int64_t)job->ttr * BS_SECOND;
    bs_heap_change(&session->reserved, &bs_job_kind, job->place, job->at);
    bs_schedule_session(queue, session);
    if (is_kept && bs_binlog_reserve_space(queue->binlog, now))
        bs_binlog_update(queue->binlog, job, 0, now); /* the reservation ends with this client now */
    else
        bs_binlog_append_deferred(queue->binlog, job, 0, now);
    return 0;
}

int bs_queue_kick_job(bs_queue *queue, bs_job *job, bs_now now)
{
    if (!job || (job->state != BS_BURIED && job->state != BS_DELAYED))
        return -ENOENT;
    if (!bs_binlog_reserve_space(queue->binlog, now))
        return -ENOSPC;
    bs_job_unlink(queue, job);
    job->kicks++;
    write_ready(queue, job, 0, now);
    return 0;
}

uint32_t bs_queue_kick(bs_queue *queue, bs_tube *tube, uint32_t wanted, bs_now now)
{
    const bs_heap *from = tube->buried.count ? &tube->buried : &tube->delayed;
    uint32_t kicked = 0;
    if (wanted > from->count)
        wanted = from->count; /* a kicked job may be buried again at once (bs_job_load) */
    while (kicked < wanted && from->count && bs_queue_kick_job(queue, bs_heap_first(from), now) == 0)
        kicked++;
    return kicked;
}

/* --- time ------------------------------------------------------------------------------------------------- */

static void tube_due(bs_queue *queue, bs_tube *tube, bs_now now)
{
    if (bs_heap_first_key(&tube->delayed) <= now.mono) {
        bs_job *job = bs_heap_first(&tube->delayed);
        bs_job_unlink(queue, job);
        bs_job_make_ready(queue, job, now);
    } else if (tube->throttles & BS_THROTTLED_RATE && bs_throttle_token_at(tube) <= now.mono) {
        bs_throttle_reset(queue, tube, now);
        bs_schedule_tube(queue, tube);
        bs_serve_waiters(queue, tube, now);
    } else if (tube->expiring.count && tube->expire_at <= now.mono) {
        bs_policy_expire(queue, tube, now);
    } else if (tube->lingers && tube->paced_until <= now.mono) {
        tube->lingers = false;
        tube->paced_until = 0;
        bs_schedule_tube(queue, tube);
        bs_refs_free_unused(queue, tube);
    } else {
        tube->pause_ns = 0;
        bs_head_changed(queue, tube);
        bs_schedule_tube(queue, tube);
        bs_serve_waiters(queue, tube, now);
    }
}

static void session_due(bs_queue *queue, bs_session *session, bs_now now)
{
    bs_heap_remove(&queue->session_times, &bs_session_kind, session->place);
    if (session->waiting && !bs_job_wait_has_ended(session) && bs_queue_deadline_soon(session, now)) {
        bs_queue_stop_waiting(queue, session);
        queue->served(queue->context, session, BS_SERVED_DEADLINE_SOON, NULL, now);
    }
    while (bs_heap_first_key(&session->reserved) <= now.mono) {
        bs_job *job = bs_heap_first(&session->reserved);
        job->timeouts++;
        queue->counters->job_timeouts++;
        release_deferred(queue, job, true, now);
    }
    if (session->waiting && !bs_job_wait_has_ended(session) && session->reserve_until <= now.mono) {
        bs_queue_stop_waiting(queue, session);
        queue->served(queue->context, session, BS_SERVED_TIMED_OUT, NULL, now);
    }
    bs_schedule_session(queue, session);
}

int64_t bs_queue_tick(bs_queue *queue, bs_now now)
{
    enum { EXPIRIES_PER_TICK = 1000 }; /* of all tubes, because other clients wait meanwhile */
    queue->expiry_left = EXPIRIES_PER_TICK;
    bs_binlog_write_pending_reserves(queue->binlog, now);
    bs_queue_expire_keys(queue, now);
    for (;;) {
        int64_t tube_at = bs_heap_first_key(&queue->tube_times);
        int64_t session_at = bs_heap_first_key(&queue->session_times);
        int64_t next = tube_at <= session_at ? tube_at : session_at;
        if (next > now.mono || next == INT64_MAX)
            return next < queue->keys_at ? next : queue->keys_at;
        if (tube_at <= session_at)
            tube_due(queue, bs_heap_first(&queue->tube_times), now);
        else
            session_due(queue, bs_heap_first(&queue->session_times), now);
    }
}
