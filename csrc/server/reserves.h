/* Reserves on this shard, and their replies: a job, or a batch. */
#ifndef BS_RESERVES_H
#define BS_RESERVES_H

#include "server/server_state.h"

/* Executes a reserve on this shard alone. `until` is mono; not later than now: no wait. Further jobs of a batch have
 * the priority `worst` or better. */
void bs_execute_reserve(bs_server *server, bs_session *session, int64_t until, uint32_t worst, bs_now now);

/* Replies to a reserve of this job, whose body is in memory. For reserve-batch (session->batch), also reserves jobs of
 * this shard whose priority is `worst` or better. */
void bs_reply_reserved(bs_server *server, bs_session *session, bs_job *job, uint32_t worst, bs_now now);

#endif
