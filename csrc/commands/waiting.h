/* The command wait, which lasts until a job ends or is buried, and the replies to all sessions that wait. */
#ifndef BS_WAITING_H
#define BS_WAITING_H

#include "protocol/parser.h"
#include "server/server_state.h"

/* Executes wait, on this shard alone or with others (shard_waits.h). */
void bs_execute_wait(bs_server *server, bs_session *session, const bs_command *command, bs_now now);

/* The queue's `served`; the context is the server. */
void bs_execute_served(void *context, bs_session *session, bs_served how, bs_job *job, bs_now now);

#endif
