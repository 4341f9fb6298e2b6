/* The command wait: a client waits until a job ends or is buried. */
#ifndef BS_WAIT_H
#define BS_WAIT_H

#include "protocol/parser.h"
#include "server/server_state.h"

void bs_execute_wait(bs_server *server, bs_session *session, const bs_command *command, bs_now now);

/* The end of a wait that only this shard takes part in. With DELETED or BURIED the session still waits. */
void bs_wait_served(bs_server *server, bs_session *session, bs_served how);

#endif
