/* The state of a job and the structure that holds it (Q1 of queue.h), and the sessions that wait for one. The counters
 * by state change only here. */
#ifndef BS_JOB_STATE_H
#define BS_JOB_STATE_H

#include "queue/queue_state.h"

/* Returns the session that holds a reserved job. */
bs_session *bs_job_holder(const bs_queue *queue, const bs_job *job);

/* Removes a job from its structure; its state is then Invalid, as the next three functions require. */
void bs_job_unlink(bs_queue *queue, bs_job *job);

/* Hands the job to the first waiting session, if any. Its binlog entry must be written before (Q5). */
void bs_job_make_ready(bs_queue *queue, bs_job *job, bs_now now);

/* The job becomes ready at job->at. */
void bs_job_make_delayed(bs_queue *queue, bs_job *job);
void bs_job_make_buried(bs_queue *queue, bs_job *job);

/* Buries a job in any state; without space in the binlog it gets no entry. */
void bs_job_bury(bs_queue *queue, bs_job *job, bs_now now);

/* Reads the body of a ready job into memory unless it is there. Returns false on failure: a job with a damaged body is
 * buried, so that its tube continues; after another error the tube pauses for a second. */
bool bs_job_load(bs_queue *queue, bs_job *job, bs_now now);

/* Removes a job from its structure and reserves it for a session. */
void bs_job_make_reserved(bs_queue *queue, bs_session *session, bs_job *job, bs_now now);

/* Reserves a job for a session, which holds it until `at` (mono), without a trace of a reserve. */
void bs_job_hold(bs_queue *queue, bs_session *session, bs_job *job, int64_t at, bs_now now);

/* The job was not ready when it was reserved. */
#define BS_NEVER_READY INT64_MIN

/* Counts a reserve of a job that was ready since then (wall). bs_job_make_reserved calls it except for a claim, which
 * is counted when it is taken. */
void bs_job_count_reserve(bs_queue *queue, const bs_job *job, int64_t since, bs_now now);

/* Removes the ids of jobs that the session no longer holds. */
void bs_prune_reserved_ids(bs_queue *queue, bs_session *session);

/* Hands ready jobs to waiting sessions (Q2). */
void bs_serve_waiters(bs_queue *queue, bs_tube *tube, bs_now now);

/* The same after a job of the tube is no longer reserved, if the tube may have been throttled (throttle.h). */
static inline void bs_serve_throttled(bs_queue *queue, bs_tube *tube, bs_now now)
{
    if (tube->policy && tube->first_waiter)
        bs_serve_waiters(queue, tube, now);
}

/* Adds the session to the waiters of all its watched tubes, until `until` at the latest. */
void bs_queue_wait(bs_queue *queue, bs_session *session, int64_t until);

/* Lets the session wait until `until` at the latest, and for DEADLINE_SOON. A `shared` wait ends with the job, which is
 * of this shard; another one ends by bs_job_wait_end. 0, or -ENOMEM and nothing has changed. */
int bs_queue_wait_for_job(bs_queue *queue, bs_session *session, uint64_t job, bool shared, int64_t until);

/* Ends either wait. */
void bs_queue_stop_waiting(bs_queue *queue, bs_session *session);

/* Lets a job that expires (expiry.h) be deleted at that age. */
void bs_job_set_expiry(bs_queue *queue, const bs_job *job, bs_now now);

/* Sets when the tube is due for the next job that expires. */
void bs_schedule_expiry(bs_queue *queue, bs_tube *tube, bs_now now);

/* Set the times at which a tube and a session are due (Q3, Q4). */
void bs_schedule_tube(bs_queue *queue, bs_tube *tube);
void bs_schedule_session(bs_queue *queue, bs_session *session);

#endif
