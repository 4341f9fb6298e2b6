/* The queue: operations on jobs, tubes and the sessions that wait for them.
 *
 * Sans I/O: time is an argument, and a waiting session is answered through `served`. Every operation is O(log n) in
 * jobs, tubes and sessions, except for a walk over the session's own watch list.
 *
 * Invariants:
 *   Q1  A job is in one structure: its tube's ready jobs, delayed or buried heap, or its session's reserved heap.
 *   Q2  A tube that is not paused or throttled (throttle.h) and has a waiter has no ready job, unless it has a pending
 *       claim (claims.h), or all waiters are of workers that do not respond (`unresponsive`).
 *   Q3  A tube's time in `tube_times` is exactly its next delayed job, the end of its pause, or its next token.
 *   Q4  A session's time in `session_times` is never later than its next deadline; it may be earlier.
 *   Q5  A change is written to the binlog before a waiting session can observe it.
 *   Q6  A truncate moves the structures of a tube's ready, delayed and buried jobs to `truncated` at once, and deletes
 *       these jobs in steps. Until then they are found only by their ids. Their `truncates` differs from the tube's.
 */
#ifndef BS_QUEUE_H
#define BS_QUEUE_H

#include "queue/job_lifetime.h"
#include "queue/queue_state.h"

/* Creates the tube `default`; shard, workers and colocate are set. 0 or a negative errno. */
int bs_queue_init(bs_queue *queue);
void bs_queue_free(bs_queue *queue);

/* --- sessions and tubes; more of both in tube_refs.h --- */

/* Releases the session's jobs and tubes and frees it. */
void bs_queue_close(bs_queue *queue, bs_session *session, bs_now now);

/* Counts the session as a worker: it has reserved. */
void bs_queue_count_worker(bs_queue *queue, bs_session *session);

/* 0 or -ENOENT. */
int bs_queue_pause(bs_queue *queue, const char *name, size_t length, uint32_t seconds, bs_now now);

/* --- starting --- */

/* Adds a job read from the binlog, whose state, times and counters are set. */
void bs_queue_restore(bs_queue *queue, bs_job *job, bs_now now);

/* --- reserving --- */

/* The best ready job of the watched tubes that are not paused, or NULL. */
bs_job *bs_queue_best_job(const bs_session *session);

/* The same, with its body in memory (bs_job_load). */
bs_job *bs_queue_best_loaded(bs_queue *queue, const bs_session *session, bs_now now);

/* Reserves it. */
bs_job *bs_queue_reserve(bs_queue *queue, bs_session *session, bs_now now);

/* Returns whether a job of this session times out within a second. */
bool bs_queue_deadline_soon(const bs_session *session, bs_now now);

/* Returns whether a watched tube that is not throttled has a ready job, paused or not. */
bool bs_queue_any_ready(const bs_session *session);

/* --- jobs: 0, -ENOENT also for NULL, or -ENOSPC when the binlog has no space (and nothing has changed) --- */

/* Returns whether a client may delete or move this job, which may be NULL. */
bool bs_queue_may_end(const bs_queue *queue, const bs_session *session, const bs_job *job);

/* A reserved job whose client has gone comes back. */
void bs_queue_return(bs_queue *queue, bs_job *job, bs_now now);

int bs_queue_reserve_job(bs_queue *queue, bs_session *session, bs_job *job, bs_now now);
int bs_queue_delete(bs_queue *queue, bs_session *session, bs_job *job, bs_now now);
int bs_queue_release(bs_queue *queue, bs_session *session, bs_job *job, uint32_t pri, uint32_t delay, bs_now now);
int bs_queue_bury(bs_queue *queue, bs_session *session, bs_job *job, uint32_t pri, bs_now now);
int bs_queue_touch(bs_queue *queue, bs_session *session, bs_job *job, bs_now now);
int bs_queue_kick_job(bs_queue *queue, bs_job *job, bs_now now);

/* Returns how many were kicked; fewer than wanted also if the binlog has no space. */
uint32_t bs_queue_kick(bs_queue *queue, bs_tube *tube, uint32_t wanted, bs_now now);

/* Begins a truncate: the ready, delayed and buried jobs of the tube will be deleted. No other one of the tube may run.
 * The caller keeps the tube (bs_refs_pin) until the end. Returns 0, -ENOSPC or -ENOMEM. */
int bs_queue_truncate_begin(bs_queue *queue, bs_tube *tube);

/* Deletes at most `most` of these jobs and returns how many. At the end tube->truncated is NULL. */
uint32_t bs_queue_truncate_step(bs_queue *queue, bs_tube *tube, uint32_t most, bs_now now);

/* --- time --- */

/* Executes everything that is due, in the order of time; returns the next time, INT64_MAX without any. */
int64_t bs_queue_tick(bs_queue *queue, bs_now now);

#endif
