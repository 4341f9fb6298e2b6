/* Where a job is (Q1 of queue.h).
 *
 * The counters of states move here and nowhere else.
 */
#ifndef BS_JOB_STATE_H
#define BS_JOB_STATE_H

#include "queue/queue_state.h"

/* The session that holds a reserved job. */
bs_session *bs_job_holder(const bs_queue *queue, const bs_job *job);

/* Takes a job from where it is; its state is then Invalid. The others want a job that is nowhere. */
void bs_job_unlink(bs_queue *queue, bs_job *job);

/* Ready, and at once handed to the first waiting session. What the binlog must know of the job is written already (Q5). */
void bs_job_make_ready(bs_queue *queue, bs_job *job, bs_now now);
void bs_job_make_delayed(bs_queue *queue, bs_job *job, int64_t deadline);
void bs_job_make_buried(bs_queue *queue, bs_job *job);

/* Takes a job from where it is and reserves it for a session. */
void bs_job_make_reserved(bs_queue *queue, bs_session *session, bs_job *job, bs_now now);

/* A job that was not ready when it was reserved. */
#define BS_NEVER_READY INT64_MIN

/* Counts that a client has been given a job, which was ready since then (wall). bs_job_make_reserved does so itself, but
 * for a claim, which is counted when it is taken: what is counted is never taken back. */
void bs_job_count_reserve(bs_queue *queue, const bs_job *job, int64_t since, bs_now now);

/* Leaves in `claims` just the jobs that the session holds, in the order of reserving. */
void bs_prune_reserved_ids(bs_queue *queue, bs_session *session);

/* Hands ready jobs to waiting sessions while there are both (Q2). */
void bs_serve_waiters(bs_queue *queue, bs_tube *tube, bs_now now);

#endif
