/* Connections: sockets that sessions own, their bytes in and out, and the end of a session. */
#ifndef BS_CONNECTION_H
#define BS_CONNECTION_H

#include "runtime/core_state.h"

/* Adds or changes a descriptor of the epoll set. 0 or a negative errno. */
int bs_core_listen(const bs_core *core, int op, int fd, uint64_t tag, uint32_t events);

/* Receives one message with descriptors from the parent. Returns false if there is none. */
bool bs_core_receive_descriptors(bs_core *core);

/* Opens a session for a connected socket, which it owns. Returns NULL without memory, and the socket is closed. The
 * session is new, or `moved` here and watches nothing yet. */
bs_session *bs_connection_open(bs_core *core, int fd, bool moved);

/* Traces the session like the others. */
void bs_connection_trace(bs_core *core, bs_session *session, bs_now now);

/* Executes the input of a session, and receives once more if there is any. */
void bs_connection_run(bs_core *core, bs_session *session, bs_now now);

/* Sends what may leave, and ends the session if it is done. Not for proxies. */
void bs_connection_send(bs_core *core, bs_session *session, bs_now now);

/* Ends a session of any kind. */
void bs_core_end_session(bs_core *core, bs_session *session, bs_now now);

/* Runs sessions without sockets that were served or got a reply. */
void bs_core_run_runnable(bs_core *core, bs_now now);

/* The same, and makes the next bs_core_run end the round. */
void bs_core_resume_sessions(bs_core *core, bs_now now);

/* Makes the caller's hub call bs_core_run. */
void bs_core_wake(bs_core *core);

#endif
