/* Sessions that wait for the end of a job, or until it is buried.
 *
 * Sessions that wait for the same job share a record, which a table finds by the job's id. When the job ends, the record
 * leaves the table at once, whatever the number of sessions. They are answered later, some in each round, and only after
 * the entry of the end is on disk, because the end of a sync would otherwise answer all of them in one round.
 *
 *   W1  A record in the table is of a job that exists and is not buried when a command begins or ends.
 *   W2  Records that have ended are in the order of their generations.
 */
#ifndef BS_JOB_WAITS_H
#define BS_JOB_WAITS_H

#include "queue/queue_state.h"

/* For bs_queue_wait_for_job and bs_queue_stop_waiting. 0, or -ENOMEM and nothing has changed. */
int bs_job_wait_add(bs_queue *queue, bs_session *session, uint64_t job, bool shared);
void bs_job_wait_remove(bs_queue *queue, bs_session *session);

/* Ends the wait of one session that shares it with none; `generation` is that of the binlog that the answer depends on.
 */
void bs_job_wait_end(bs_queue *queue, const bs_session *session, bs_served how, uint64_t generation);

/* Returns whether the wait of a session has ended. Its answer follows (bs_job_waits_answer), whatever else happens. */
bool bs_job_wait_has_ended(const bs_session *session);

/* Returns the job that a session waits for. */
uint64_t bs_job_wait_id(const bs_session *session);

void bs_job_waits_end_all(bs_queue *queue, uint64_t job, bs_served how);

/* Ends all waits for a job that was deleted or buried; its entry is appended. */
static inline void bs_job_waits_notify(bs_queue *queue, uint64_t job, bs_served how)
{
    if (queue->job_waits.count)
        bs_job_waits_end_all(queue, job, how);
}

/* Returns whether a session can be answered now. */
bool bs_job_waits_due(const bs_queue *queue);

/* Answers at most so many sessions through `served`; returns how many. */
uint32_t bs_job_waits_answer(bs_queue *queue, uint32_t most, bs_now now);

/* Frees the records, and those of all sessions. */
void bs_job_waits_free(bs_queue *queue);

#endif
