/* Commands that wait, on one shard: reserves wait for a job, wait waits until a job ends or is buried. */
#ifndef BS_WAITING_H
#define BS_WAITING_H

#include "protocol/parser.h"
#include "server/server_state.h"

/* Executes a reserve on this shard alone. `until` is mono; not later than now: no wait. Further jobs of a batch have
 * the priority `worst` or better. */
void bs_execute_reserve(bs_server *server, bs_session *session, int64_t until, uint32_t worst, bs_now now);

/* Executes wait, on this shard alone or with others (shard_waits.h). */
void bs_execute_wait(bs_server *server, bs_session *session, const bs_command *command, bs_now now);

/* The queue's `served`; the context is the server. */
void bs_execute_served(void *context, bs_session *session, bs_served how, bs_job *job, bs_now now);

#endif
