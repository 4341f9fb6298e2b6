/* A reserve on one shard, and the end of its wait. */
#ifndef BS_RESERVE_H
#define BS_RESERVE_H

#include "server/server_state.h"

/* Executes a reserve on this shard alone. `until` is mono; not later than now: no wait. Further jobs of a batch have
 * the priority `worst` or better. */
void bs_execute_reserve(bs_server *server, bs_session *session, int64_t until, uint32_t worst, bs_now now);

/* The queue's `served`; the context is the server. */
void bs_execute_served(void *context, bs_session *session, bs_served how, bs_job *job, bs_now now);

#endif
