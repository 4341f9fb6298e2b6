/* A session's bytes as commands: lines, bodies, what has to be thrown away; in any pieces.
 *
 * A session that waits, is parked or is stalled executes nothing, and neither does one whose client does not take its replies:
 * its input stays where it is until bs_stream_resume.
 */
#ifndef BS_STREAM_H
#define BS_STREAM_H

#include "server/server_state.h"

/* Is there a reason not to execute anything now? */
bool bs_stream_blocked(const bs_server *server, const bs_session *session);

/* Executes these bytes; keeps what is not complete or not yet to be executed. */
void bs_stream_feed(bs_server *server, bs_session *session, const char *bytes, size_t length, bs_now now);

/* Goes on with the input that was kept. */
void bs_stream_resume(bs_server *server, bs_session *session, bs_now now);

/* The client has closed its side. With `drained` all its bytes have been fed. */
void bs_stream_finish(bs_server *server, bs_session *session, bool drained, bs_now now);

#endif
