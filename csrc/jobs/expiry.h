/* The jobs of a tube by the time at which they expire: because of the tube's policy, or of their own attributes.
 *
 * A heap of ids by the second of the wall clock. An entry becomes stale when its job leaves the tube; stale entries are
 * dropped when they come first, or when they outnumber the jobs. A job that is reserved or buried when its entry is due
 * loses the entry: bs_policy_ends tests a reserved job when it comes back.
 */
#ifndef BS_EXPIRY_H
#define BS_EXPIRY_H

#include "jobs/tube.h"

/* Returns the age in seconds at which the job expires, 0 if it never does: that of its attributes or of the policy,
 * whichever comes first. */
static inline uint32_t bs_expiry_of(const bs_job *job)
{
    const uint32_t by_policy = job->tube->policy ? job->tube->policy->expires : 0;
    const uint32_t own = job->has_attributes ? bs_job_attributes_of(job)->expires : 0;
    return own && (!by_policy || own < by_policy) ? own : by_policy;
}

/* Returns whether the job has reached that age. */
bool bs_expiry_reached(const bs_job *job, int64_t wall);

/* Adds a job that expires. */
void bs_expiry_add(bs_tube *tube, const bs_job_table *jobs, const bs_job *job);

/* Removes the entry of the next job that is ready or delayed and has expired, and returns the job, or NULL. Looks at
 * `most` entries, and subtracts those that it has looked at. */
bs_job *bs_expiry_take(bs_tube *tube, const bs_job_table *jobs, int64_t wall, uint32_t *most);

/* Returns the wall time at which the next entry is due, INT64_MAX without any. */
int64_t bs_expiry_next(const bs_tube *tube);

#endif
