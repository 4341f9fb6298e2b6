/* Limits of reserves by tube policies: how many jobs are reserved at once, and how many per second.
 *
 * A tube that has reached a limit is throttled: it keeps its ready jobs, as a paused one does, and its clients wait.
 *   H1  BS_THROTTLED_RESERVED is set if and only if as many jobs are reserved as the policy allows.
 *   H2  BS_THROTTLED_RATE is set from the reserve that took the last token until the next token is there; tube_times
 *       has that time (Q3). So a client is woken only if there is a token for it.
 *   H3  A tube that nobody uses stays until all its reserves are paid for, or the next tube of its name would begin
 *       with a full bucket.
 * A bucket of tokens is one time: `paced_until` rises by the interval with each reserve that takes a token, and tokens are
 * missing while it is a burst or more ahead of the clock. A reserve by id without a token does not move it.
 */
#ifndef BS_THROTTLE_H
#define BS_THROTTLE_H

#include "queue/queue_state.h"

/* A job of a tube with a policy was reserved. The caller schedules the tube. */
void bs_throttle_reserved(bs_queue *queue, bs_tube *tube, bs_now now);

/* A job of a tube with a policy is no longer reserved. */
void bs_throttle_unreserved(bs_queue *queue, bs_tube *tube);

/* A claim was cancelled: its token returns. */
void bs_throttle_return_token(bs_queue *queue, bs_tube *tube, bs_now now);

/* Returns the time of the next token of a tube that is throttled for its rate. */
int64_t bs_throttle_token_at(const bs_tube *tube);

/* Sets the throttles of a tube whose policy has changed, NULL for none. */
void bs_throttle_reset(bs_queue *queue, bs_tube *tube, bs_now now);

#endif
