/* Sessions that wait in a reserve, and the times at which tubes and sessions are due (Q3, Q4 of queue.h). */
#ifndef BS_WAITERS_H
#define BS_WAITERS_H

#include "queue/queue_state.h"

/* Adds the session to the waiters of all its watched tubes, until `until` at the latest. */
void bs_queue_wait(bs_queue *queue, bs_session *session, int64_t until);
void bs_queue_stop_waiting(bs_queue *queue, bs_session *session);

/* The first waiter whose worker responds, or NULL. */
bs_session *bs_first_waiter(const bs_queue *queue, const bs_tube *tube);

void bs_schedule_tube(bs_queue *queue, bs_tube *tube);
void bs_schedule_session(bs_queue *queue, bs_session *session);

#endif
