#include "queue/job_lifetime.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "jobs/expiry.h"
#include "jobs/job_owners.h"
#include "queue/job_state.h"
#include "queue/job_waits.h"
#include "queue/tube_refs.h"

void bs_queue_drop_job(bs_queue *queue, bs_job *job)
{
    bs_tube *tube = job->tube;
    tube->jobs--;
    tube->bytes -= job->body_size;
    queue->counters->job_bytes -= bs_job_record_bytes(job);
    if (job->separate && queue->bodies)
        bs_body_release(queue->bodies, job);
    bs_job_free(job);
    bs_refs_free_unused(queue, tube);
}

bs_job *bs_queue_new_job(bs_queue *queue, bs_tube *tube, uint64_t id, uint32_t body_size, bool attributes)
{
    const bool separate = queue->bodies && !tube->remote;
    bs_job *job = separate ? bs_bodies_new_job(queue->bodies, id, body_size, attributes)
                           : bs_job_new(id, body_size, false, attributes);
    if (!job)
        return NULL;
    job->tube = tube;
    tube->jobs++;
    tube->bytes += body_size;
    queue->counters->job_bytes += bs_job_record_bytes(job);
    return job;
}

bs_job *bs_queue_copy_job(bs_queue *queue, const bs_job *job, const bs_job_target *to)
{
    const uint64_t id = __atomic_add_fetch(&queue->shared->last_id, 1, __ATOMIC_RELAXED);
    bs_job *copy = bs_queue_new_job(queue, to->tube, id, job->body_size, false);
    if (!copy)
        return NULL;
    memcpy(bs_job_body(copy), bs_job_body(job), job->body_size);
    copy->created_at = job->created_at;
    copy->pri = to->pri;
    copy->delay = to->delay;
    copy->ttr = job->ttr;
    copy->reserves = job->reserves;
    copy->timeouts = job->timeouts;
    copy->releases = job->releases;
    copy->buries = job->buries;
    copy->kicks = job->kicks;
    return copy;
}

/* Adds the job to the tables by id and by key. 0 or -ENOMEM. */
static int add_to_tables(bs_queue *queue, bs_job *job)
{
    int error = bs_job_table_add(&queue->jobs, job);
    if (error || !bs_job_has_key(job))
        return error;
    error = bs_unique_add(&queue->key_holders, job);
    if (error)
        bs_job_table_remove(&queue->jobs, job);
    return error;
}

static void remove_from_tables(bs_queue *queue, const bs_job *job)
{
    bs_job_table_remove(&queue->jobs, job);
    if (bs_job_has_key(job))
        bs_unique_remove(&queue->key_holders, job);
}

int bs_queue_insert(bs_queue *queue, bs_job *job, bs_now now)
{
    int error = add_to_tables(queue, job);
    if (error)
        return error;
    job->state = job->delay ? BS_DELAYED : BS_READY;
    const int64_t delay = job->at ? job->at : (int64_t)job->delay * BS_SECOND;
    job->at = job->delay ? now.mono + delay : now.wall;
    error = bs_binlog_put(queue->binlog, job, now);
    if (error) {
        remove_from_tables(queue, job);
        return error;
    }
    queue->counters->total_jobs++;
    job->tube->total_jobs++;
    if (queue->workers > 1)
        bs_owner_set(queue->shared, job->id, queue->shard);
    if (bs_expiry_of(job))
        bs_job_set_expiry(queue, job, now);
    if (job->delay)
        bs_job_make_delayed(queue, job);
    else
        bs_job_make_ready(queue, job, now);
    if (job->separate)
        bs_body_arrived(queue->bodies, job);
    return 0;
}

void bs_queue_free_key(bs_queue *queue, const bs_job *job)
{
    if (!bs_job_has_key(job))
        return;
    bs_unique_remove(&queue->key_holders, job);
    /* After a crash between the entries of a key's end and of the delete, there are both. */
    bs_ended_key *ended = bs_ended_find(&queue->ended_keys, bs_job_attributes_of(job)->key);
    if (ended && ended->job == job->id)
        bs_queue_remove_ended_key(queue, ended);
    memset(bs_job_attributes_of(job)->key, 0, BS_KEY_BYTES);
}

void bs_queue_remove_ended_key(bs_queue *queue, bs_ended_key *ended)
{
    bs_binlog_forget_key(queue->binlog, ended);
    queue->counters->job_bytes -= BS_ENDED_KEY_MEMORY;
    bs_ended_remove(&queue->ended_keys, ended);
}

bs_ended_key *bs_queue_add_ended_key(bs_queue *queue, const uint8_t key[BS_KEY_BYTES], uint64_t job, uint32_t until)
{
    bs_ended_key *before = bs_ended_find(&queue->ended_keys, key);
    if (before)
        bs_queue_remove_ended_key(queue, before);
    queue->counters->job_bytes += BS_ENDED_KEY_MEMORY;
    return bs_ended_add(&queue->ended_keys, key, job, until);
}

/* Removes at most `most` ended keys whose time is over; returns whether there are no others. */
static bool expire_keys(bs_queue *queue, int most, bs_now now)
{
    bs_ended_key *ended;
    while ((ended = bs_ended_first(&queue->ended_keys)) && bs_ended_is_over(ended->until, now.wall)) {
        if (most-- == 0)
            return false;
        bs_queue_remove_ended_key(queue, ended);
    }
    return true;
}

/* Returns the time until the key is over, or until the wall clock, which may be set forward, is to be read again. */
static int64_t wait_for_key(const bs_ended_key *ended, bs_now now)
{
    const int64_t longest = 60 * BS_SECOND;
    const int64_t left = (int64_t)ended->until * BS_SECOND - now.wall;
    return left < longest ? left : longest;
}

void bs_queue_expire_keys(bs_queue *queue, bs_now now)
{
    enum { KEYS_AT_ONCE = 1000 };
    if (queue->keys_at > now.mono)
        return;
    const bool all = expire_keys(queue, KEYS_AT_ONCE, now);
    const bs_ended_key *next = bs_ended_first(&queue->ended_keys);
    queue->keys_at = !all ? now.mono + BS_MILLISECOND : next ? now.mono + wait_for_key(next, now) : INT64_MAX;
}

/* Keeps the key of a job that is about to end, if it has a window. 0 or -ENOSPC. */
static int keep_key(bs_queue *queue, const bs_job *job, bs_now now)
{
    if (!bs_job_has_key(job) || !bs_job_attributes_of(job)->window)
        return 0;
    const bs_job_attributes *attributes = bs_job_attributes_of(job);
    const uint32_t until = bs_ended_until(attributes->window, now.wall);
    (void)expire_keys(queue, 2, now); /* so that many deletes in one round add no more than they remove */
    bs_ended_key *ended = bs_queue_add_ended_key(queue, attributes->key, job->id, until);
    const int64_t at = now.mono + wait_for_key(ended, now);
    queue->keys_at = at < queue->keys_at ? at : queue->keys_at;
    const int error = bs_binlog_end_key(queue->binlog, ended, now);
    if (error)
        bs_queue_remove_ended_key(queue, ended);
    return error;
}

int bs_queue_remove(bs_queue *queue, bs_job *job, uint32_t ended, bs_now now)
{
    int error = keep_key(queue, job, now);
    if (!error)
        error = bs_binlog_delete(queue->binlog, job, ended, now);
    if (error)
        return error;
    bs_tube *tube = job->tube;
    const bool throttled = tube->throttles && tube->first_waiter; /* a tube with a waiter stays */
    bs_job_unlink(queue, job);
    remove_from_tables(queue, job);
    bs_job_waits_notify(queue, job->id, BS_SERVED_DELETED);
    bs_queue_drop_job(queue, job);
    if (throttled)
        bs_serve_waiters(queue, tube, now);
    return 0;
}

/* --- moves ------------------------------------------------------------------------------------------------ */

struct bs_job_move {
    bs_job_move *next;
    uint64_t session;
    uint64_t job;
    uint64_t copy;
    uint64_t generation; /* of the copy's entry */
    uint32_t ended;
    int64_t deadline;    /* of the reserve that the job's last entry will record; 0: none */
    uint32_t file;       /* of the job's full entry */
};

static bs_session *mover_of(bs_queue *queue)
{
    bs_session *mover = bs_sessions_find(&queue->sessions, queue->mover);
    if (mover)
        return mover;
    mover = bs_refs_open_mover(queue);
    queue->mover = mover ? mover->id : 0;
    return mover;
}

/* The last entry of a job that a client moves has no space for the reserve. */
static void write_reserve(bs_queue *queue, bs_job *job, uint32_t ended, bs_now now)
{
    if (ended == BS_ENDED_MOVED && bs_binlog_reserve_age(queue->binlog, job, now))
        bs_binlog_append_deferred(queue->binlog, job, 0, now);
}

int bs_queue_end_moved(bs_queue *queue, bs_job *job, uint32_t ended, bs_now now)
{
    bs_queue_free_key(queue, job);
    write_reserve(queue, job, ended, now);
    return bs_queue_remove(queue, job, ended, now) == 0 ? 0 : BS_MOVE_NOT_REMOVED;
}

/* Inserts a copy. 0 and its id; or an error, and an unused tube is freed. */
static int insert_copy(bs_queue *queue, const bs_job *job, const bs_job_target *to, uint64_t *id, bs_now now)
{
    bs_job *copy = bs_queue_copy_job(queue, job, to);
    if (!copy) {
        bs_refs_free_unused(queue, to->tube);
        return -ENOMEM;
    }
    *id = copy->id;
    const int error = bs_queue_insert(queue, copy, now);
    if (error)
        bs_queue_drop_job(queue, copy);
    return error;
}

static void await_sync(bs_queue *queue, bs_session *mover, bs_job *job, bs_job_move *move, bs_now now)
{
    move->job = job->id;
    move->generation = bs_binlog_generation(queue->binlog);
    write_reserve(queue, job, move->ended, now);
    move->file = job->file;
    move->deadline = bs_binlog_reserve_age(queue->binlog, job, now) ? job->at : 0;
    bs_job_hold(queue, mover, job, now.mono + BS_MOVE_NS, now);
    *(queue->last_move ? &queue->last_move->next : &queue->first_move) = move;
    queue->last_move = move;
}

int bs_queue_move(bs_queue *queue, bs_job *job, bs_job_target to, uint64_t *id, bs_now now)
{
    const bool waits = queue->binlog && queue->binlog->sync_interval_ns >= 0;
    bs_session *mover = waits ? mover_of(queue) : NULL;
    bs_job_move *move = mover ? calloc(1, sizeof *move) : NULL;
    if (waits && !move) {
        bs_refs_free_unused(queue, to.tube);
        return -ENOMEM;
    }
    const int error = insert_copy(queue, job, &to, id, now);
    if (error) {
        free(move);
        return error;
    }
    if (!move)
        return bs_queue_end_moved(queue, job, to.ended, now);
    *move = (bs_job_move){.session = to.session, .copy = *id, .ended = to.ended};
    await_sync(queue, mover, job, move, now);
    return BS_MOVE_WAITS;
}

bool bs_queue_move_due(const bs_queue *queue)
{
    const bs_job_move *move = queue->first_move;
    return move && (!queue->binlog || queue->binlog->synced >= move->generation);
}

bool bs_queue_end_next_move(bs_queue *queue, bs_ended_move *ended, bs_now now)
{
    bs_job_move *move = queue->first_move;
    if (!bs_queue_move_due(queue))
        return false;
    queue->first_move = move->next;
    if (!queue->first_move)
        queue->last_move = NULL;
    bs_job *job = bs_job_table_find(&queue->jobs, move->job);
    const bs_session *mover = bs_sessions_find(&queue->sessions, queue->mover);
    const bool held = job && job->state == BS_RESERVED && bs_job_holder(queue, job) == mover;
    if (held && move->deadline && job->file == move->file) { /* else a copy has recorded it */
        job->at = move->deadline;
        job->reserve_written = 0;
    }
    *ended = (bs_ended_move){move->session, move->copy, !held || bs_queue_end_moved(queue, job, move->ended, now) != 0};
    if (held && ended->failed)
        bs_job_bury(queue, job, now); /* the binlog has failed, and nothing is acknowledged any more */
    free(move);
    return true;
}

void bs_queue_free_moves(bs_queue *queue)
{
    for (bs_job_move *move = queue->first_move, *next; move; move = next) {
        next = move->next;
        free(move);
    }
}
