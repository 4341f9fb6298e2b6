/* The effect of tube policies (docs/policies.md) on the jobs of this shard.
 *
 * A tube has a pointer to its policy, or NULL, which is set when the tube is created and when the policies change. So a
 * command for a tube without a policy tests one pointer. Tubes of other shards have their policies, too: a TTR of 0 is
 * replaced where the client is, because the command for the other worker has the TTR of the job. The limits of a tube
 * are tested by the worker that has its jobs.
 */
#ifndef BS_TUBE_POLICIES_H
#define BS_TUBE_POLICIES_H

#include "jobs/policies.h"
#include "queue/queue_state.h"

/* Owns the policies from now on, NULL for none, and frees the previous ones. */
void bs_queue_set_policies(bs_queue *queue, bs_policies *policies, bs_now now);

/* Returns why the policy of the tube refuses a job with such a body (with CR LF), or BS_REFUSED_REASONS. */
bs_refused bs_policy_refusal(const bs_tube *tube, uint32_t body_size);

/* Sets the delay and the TTR of a new job of a tube with a policy from those of the put. */
void bs_policy_set_times(bs_queue *queue, bs_job *job, uint32_t delay, uint32_t ttr);

/* Returns the delay of a job that a client puts or releases into a tube with a policy. */
uint32_t bs_policy_delay(bs_queue *queue, const bs_policy *policy, uint32_t delay);

/* Returns the delay of a job that comes back to a tube whose policy has a backoff. */
uint32_t bs_policy_backoff(bs_queue *queue, const bs_job *job);

/* Returns whether a reserved job ends when it comes back: it has expired, or was reserved as often as the policy allows
 * since its put or last kick. The tube may have no policy. */
bool bs_policy_ends(const bs_job *job, bs_now now);

/* Deletes jobs that have expired, and sets the time of the next one. */
void bs_policy_expire(bs_queue *queue, bs_tube *tube, bs_now now);

/* Deletes a job that has expired, and counts that. 0 or -ENOSPC. */
int bs_policy_expire_job(bs_queue *queue, bs_job *job, bs_now now);

/* Returns the job that holds a key, or NULL. The key is free if the job is about to be deleted: its tube is being
 * truncated and it has no window, or it has expired. */
bs_job *bs_queue_key_holder(bs_queue *queue, const uint8_t key[BS_KEY_BYTES], bs_now now);

/* Buries, deletes or moves a job that ends like that; false: it does not. */
bool bs_policy_end_job(bs_queue *queue, bs_job *job, bs_now now);

#endif
