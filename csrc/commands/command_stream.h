/* Cuts a session's bytes into commands: lines, bodies, bytes to skip; in any pieces.
 *
 * A session that waits, is parked or stalled, or has too much unread output executes nothing, nor does any client of
 * a server that ends. Its input is kept until bs_stream_resume.
 */
#ifndef BS_STREAM_H
#define BS_STREAM_H

#include "server/server_state.h"

bool bs_stream_blocked(const bs_server *server, const bs_session *session);

/* Returns `now`, or 1 ns after the last command if that is later. */
bs_now bs_distinct_time(bs_server *server, bs_now now);

/* Executes these bytes; buffers what is incomplete or must wait. */
void bs_stream_feed(bs_server *server, bs_session *session, const char *bytes, size_t length, bs_now now);

/* Executes buffered input. */
void bs_stream_resume(bs_server *server, bs_session *session, bs_now now);

enum { BS_ABORT_BYTES = 15 }; /* of a line reserve-abort */

/* Ends the session's wait if its next line is reserve-abort: `more` are bytes that follow its buffered input, and stay
 * unread. Called when a wait begins, and when input arrives during one. */
void bs_stream_look_ahead(bs_server *server, bs_session *session, const char *more, size_t length, bs_now now);

/* The client has closed its sending side. With `drained` all its bytes have been fed. */
void bs_stream_finish(bs_server *server, bs_session *session, bool drained, bs_now now);

#endif
