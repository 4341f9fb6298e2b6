/* What each command does, and what it answers. */
#ifndef BS_COMMANDS_H
#define BS_COMMANDS_H

#include "protocol/parser.h"
#include "server/server_state.h"

/* Executes one command line, without its CR LF. False: not now, and the session is stalled. */
bool bs_execute(bs_server *server, bs_session *session, const char *line, size_t length, bs_now now);

/* A line is answered by BAD_FORMAT: if it is a put, it counts as refused. */
void bs_count_bad_line(bs_server *server, const char *line, size_t length);

/* A command has been executed, or refused: if that was all of it, it is timed. `asked` is what bs_remote_outstanding was
 * before. */
void bs_command_done(bs_server *server, bs_session *session, uint32_t asked);

/* All of a reserve that this worker can answer alone. `until` on the monotonic clock; not later than now: no wait. */
void bs_execute_reserve(bs_server *server, bs_session *session, int64_t until, bs_now now);

/* The body of session->incoming is complete. */
void bs_execute_body(bs_server *server, bs_session *session, bs_now now);

/* A reserve has ended: the queue's `served`, with the server as context. */
void bs_execute_served(void *context, bs_session *session, bs_served how, bs_job *job);

#endif
