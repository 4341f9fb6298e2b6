/* How a job enters the queue and leaves it. */
#ifndef BS_JOB_LIFETIME_H
#define BS_JOB_LIFETIME_H

#include "queue/queue_state.h"

/* Creates a job for a tube, not yet in the queue, with zeroed attributes or without. NULL without memory. */
bs_job *bs_queue_new_job(bs_queue *queue, bs_tube *tube, uint64_t id, uint32_t body_size, bool attributes);
void bs_queue_drop_job(bs_queue *queue, bs_job *job);

/* Inserts a job whose `created_at` is set, and whose key, if it has one, has no holder. 0, -ENOSPC or -ENOMEM; the queue
 * owns the job only after 0. */
int bs_queue_insert(bs_queue *queue, bs_job *job, bs_now now);

/* Deletes a job in any state; `ended` is of entry.h. 0 or -ENOSPC. */
int bs_queue_remove(bs_queue *queue, bs_job *job, uint32_t ended, bs_now now);

/* The job has no key any more, and will have none when it ends. */
void bs_queue_free_key(bs_queue *queue, const bs_job *job);

/* Adds the record of an ended key, which replaces an earlier one. */
bs_ended_key *bs_queue_add_ended_key(bs_queue *queue, const uint8_t key[BS_KEY_BYTES], uint64_t job, uint32_t until);

/* Removes the record of an ended key. */
void bs_queue_remove_ended_key(bs_queue *queue, bs_ended_key *ended);

/* Removes some ended keys whose time is over, and sets `keys_at`. */
void bs_queue_expire_keys(bs_queue *queue, bs_now now);

#endif
