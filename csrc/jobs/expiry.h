/* The jobs of a tube by the time at which its policy deletes them.
 *
 * A heap of ids by the second of the wall clock. An entry becomes stale when its job leaves the tube; stale entries are
 * dropped when they come first, or when they outnumber the jobs. A job that is reserved or buried when its entry is due
 * loses the entry: bs_policy_ends tests a reserved job when it comes back.
 */
#ifndef BS_EXPIRY_H
#define BS_EXPIRY_H

#include "jobs/tube.h"

/* Returns whether a job of a tube whose policy has `expires` has reached that age. */
bool bs_expiry_reached(const bs_job *job, int64_t wall);

/* Adds a job of such a tube. */
void bs_expiry_add(bs_tube *tube, const bs_job_table *jobs, const bs_job *job);

/* Removes the entry of the next job that is ready or delayed and has expired, and returns the job, or NULL. Looks at
 * `most` entries, and subtracts those that it has looked at. */
bs_job *bs_expiry_take(bs_tube *tube, const bs_job_table *jobs, int64_t wall, uint32_t *most);

/* Returns the wall time at which the next entry is due, INT64_MAX without any. */
int64_t bs_expiry_next(const bs_tube *tube);

#endif
