/* The queue: what happens to jobs, tubes and the sessions that wait for them.
 *
 * Sans I/O: time comes in as an argument, and a waiting session is answered through `served`. Every command here is
 * O(log n) in jobs, tubes and sessions, but for a walk over the session's own watch list.
 *
 * Invariants:
 *   Q1  A job is in one place: its tube's ready jobs, delayed or buried heap, or its session's reserved heap.
 *   Q2  A tube that is not paused and has a waiter has no ready job, unless a claim of one of its jobs is not decided
 *       (pending_claims.h), or all who wait are of workers that do not answer (`slow`).
 *   Q3  A tube's time in `tube_times` is its next delayed job or the end of its pause, exactly.
 *   Q4  A session's time in `session_times` is never later than its next deadline; it may be earlier.
 *   Q5  What a change writes to the binlog is written before a waiting session can see it.
 */
#ifndef BS_QUEUE_H
#define BS_QUEUE_H

#include "queue/queue_state.h"

/* Makes the tube `default`; shard, workers and colocate are set. 0 or -ENOMEM. */
int bs_queue_init(bs_queue *queue);
void bs_queue_free(bs_queue *queue);

/* --- sessions and tubes; more of both in tube_refs.h --- */

/* Gives back all it holds and frees it. */
void bs_queue_close(bs_queue *queue, bs_session *session, bs_now now);

/* The session has reserved: counts it as a worker from now on. */
void bs_queue_count_worker(bs_queue *queue, bs_session *session);

/* 0 or -ENOENT. */
int bs_queue_pause(bs_queue *queue, const char *name, size_t length, uint32_t seconds, bs_now now);

/* --- putting --- */

/* A job for the used tube with an id of its own, not yet in the queue. NULL when memory ran out. */
bs_job *bs_queue_new_job(bs_queue *queue, bs_session *session, uint64_t id, uint32_t body_size);
void bs_queue_drop_job(bs_queue *queue, bs_job *job);

/* Puts it. 0, -ENOSPC or -ENOMEM; the job is the queue's only after 0. */
int bs_queue_insert(bs_queue *queue, bs_job *job, bs_now now);

/* Puts a job read from the binlog back as it was: state, times and counters are set. 0 or -ENOMEM. */
void bs_queue_restore(bs_queue *queue, bs_job *job, bs_now now);

/* --- reserving --- */

/* The best job of the watched tubes, reserved, or NULL. */
bs_job *bs_queue_reserve(bs_queue *queue, bs_session *session, bs_now now);
/* Does a job of this session end within a second? */
bool bs_queue_deadline_soon(const bs_session *session, bs_now now);

/* Has a watched tube a ready job, paused or not? */
bool bs_queue_any_ready(const bs_session *session);

/* --- jobs: 0, -ENOENT, or -ENOSPC when the binlog has no room (and nothing has changed) --- */

int bs_queue_reserve_job(bs_queue *queue, bs_session *session, bs_job *job, bs_now now);
int bs_queue_delete(bs_queue *queue, bs_session *session, bs_job *job, bs_now now);

/* For an operator: of a job that nobody has reserved. */
int bs_queue_truncate(bs_queue *queue, bs_job *job, bs_now now);
int bs_queue_release(bs_queue *queue, bs_session *session, bs_job *job, uint32_t pri, uint32_t delay, bs_now now);
int bs_queue_bury(bs_queue *queue, bs_session *session, bs_job *job, uint32_t pri, bs_now now);
int bs_queue_touch(bs_queue *queue, bs_session *session, bs_job *job, bs_now now);
int bs_queue_kick_job(bs_queue *queue, bs_job *job, bs_now now);

/* How many were kicked; fewer than wanted also when the binlog has no room. */
uint32_t bs_queue_kick(bs_queue *queue, bs_tube *tube, uint32_t wanted, bs_now now);

/* --- time --- */

/* Does all that is due, in the order of its times; the next time, INT64_MAX without any. */
int64_t bs_queue_tick(bs_queue *queue, bs_now now);

#endif
