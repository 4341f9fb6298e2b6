/* The reply to a reserve: one job, or a batch of what is ready. */
#ifndef BS_RESERVE_REPLY_H
#define BS_RESERVE_REPLY_H

#include "server/server_state.h"

/* The session has reserved this job, whose body is in memory. For reserve-batch (session->batch), also reserves jobs of
 * this shard whose priority is `worst` or better. */
void bs_reply_reserved(bs_server *server, bs_session *session, bs_job *job, uint32_t worst, bs_now now);

#endif
