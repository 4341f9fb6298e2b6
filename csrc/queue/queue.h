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

#include "binlog/binlog.h"
#include "api/core.h"
#include "queue/job.h"
#include "queue/session.h"
#include "queue/tube.h"

typedef enum { BS_SERVED_JOB, BS_SERVED_TIMED_OUT, BS_SERVED_DEADLINE_SOON } bs_served;

/* A worker that is down or has told nothing: what its counters say. */
#define BS_ADOPTED_UNKNOWN UINT64_MAX

typedef struct {
    bs_job_table jobs;
    bs_tubes tubes;     /* of this shard */
    bs_tubes elsewhere; /* used or watched here, of other shards */
    bs_sessions sessions;
    bs_heap tube_times;
    bs_heap session_times;
    bs_tube *default_tube;
    bs_tube *nowhere; /* what proxies use; no client can say its name */
    bs_tube *first_changed; /* tubes elsewhere whose counts their worker does not know yet, in the order of change */
    bs_tube *last_changed;
    uint32_t shard;
    uint32_t workers;
    const char *colocate;
    bs_binlog *binlog; /* NULL: nothing is written */
    bs_counters *counters;
    bs_shared *shared;
    uint64_t adopted[BS_MAX_WORKERS]; /* connections that others have got from the parent, or BS_ADOPTED_UNKNOWN */
    bool adopts;       /* this worker has, and the others do not know yet */
    bool slow[BS_MAX_WORKERS]; /* has kept a claimed job too long, and said nothing since */
    int64_t buried_sequence;
    int64_t last_buried_at; /* wall; so that the times of burying rise whatever the clock does */
    void (*served)(void *context, bs_session *session, bs_served how, bs_job *job);
    void *context;
} bs_queue;

/* Makes the tube `default`; shard, workers and colocate are set. 0 or -ENOMEM. */
int bs_queue_init(bs_queue *queue);
void bs_queue_free(bs_queue *queue);

/* --- sessions and tubes; more of both in tube_refs.h --- */

/* Gives back all it holds and frees it. */
void bs_queue_close(bs_queue *queue, bs_session *session, bs_now now);

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
void bs_queue_wait(bs_queue *queue, bs_session *session, int64_t until);
void bs_queue_stop_waiting(bs_queue *queue, bs_session *session);

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
