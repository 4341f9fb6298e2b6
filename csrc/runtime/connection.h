/* Connections: the sockets of sessions, their input and output, and the end of a session. */
#ifndef BS_CONNECTION_H
#define BS_CONNECTION_H

#include "runtime/core_state.h"

/* Adds or changes a descriptor of the epoll set. 0 or a negative errno. */
int bs_core_epoll(const bs_core *core, int op, int fd, uint64_t tag, uint32_t events);

/* Receives one message with descriptors from the parent. Returns false if there is none. */
bool bs_core_receive_descriptors(bs_core *core);

/* Opens a session for a connected socket, which it owns. NULL without memory, and the socket is closed. A session that
 * has `moved` here watches nothing yet. */
bs_session *bs_connection_open(bs_core *core, int fd, bool moved);

void bs_connection_trace(bs_core *core, bs_session *session, bs_now now);

/* Executes a session's input, and receives once more. */
void bs_connection_run(bs_core *core, bs_session *session, bs_now now);

/* Sends what may leave, and ends the session if it is closing. Not for proxies. */
void bs_connection_send(bs_core *core, bs_session *session, bs_now now);

/* Closes clients that exceed a timeout (client_timeouts.c). Returns the time of the next check, INT64_MAX without any.
 */
int64_t bs_timeouts_tick(bs_core *core, bs_now now);

void bs_core_end_session(bs_core *core, bs_session *session, bs_now now);

/* Executes the input of runnable sessions without sockets. */
void bs_core_run_runnable(bs_core *core, bs_now now);

/* The same, and makes the next bs_core_run start with a round. */
void bs_core_resume_sessions(bs_core *core, bs_now now);

/* Wakes Python's event loop, so that it calls bs_core_run, which then starts with a round. */
void bs_core_wake(bs_core *core);

/* Discards the unread input of all clients. */
void bs_connections_discard_input(bs_core *core);

#endif
