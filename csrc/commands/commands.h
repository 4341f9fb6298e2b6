/* The commands and their replies. */
#ifndef BS_COMMANDS_H
#define BS_COMMANDS_H

#include "protocol/parser.h"
#include "server/server_state.h"

/* Executes one command line without its CR LF. Returns false if it must wait, and then the session is stalled. */
bool bs_execute(bs_server *server, bs_session *session, const char *line, size_t length, bs_now now);

/* A line gets BAD_FORMAT: if it is a put, it counts as refused and has spent its options. */
void bs_count_bad_line(bs_server *server, bs_session *session, const char *line, size_t length);

/* A command has been executed or refused: if it is complete, it is timed. `outstanding` is bs_remote_outstanding before
 * it. */
void bs_command_done(bs_server *server, bs_session *session, uint32_t outstanding);

/* Executes the line of a put (put.c): begins to collect its body, or refuses it. */
void bs_execute_put(bs_server *server, bs_session *session, const bs_command *command, bs_now now);

/* Sets the options of the session's next put from the arguments of `with`, or from those of a job that has `moved` here.
 * Returns false without memory. */
bool bs_execute_with(bs_session *session, const char *text, size_t length, bool moved);

/* Executes the put whose body session->incoming is complete. */
void bs_execute_body(bs_server *server, bs_session *session, bs_now now);

/* Replies in YAML (yaml_replies.c). Python makes that of `stats`. */
void bs_reply_stats_job(bs_server *server, bs_session *session, const bs_job *job, bs_now now);
void bs_reply_stats_tube(bs_server *server, bs_session *session, const bs_tube *tube, bs_now now);
void bs_reply_list_tubes(bs_server *server, bs_session *session);
void bs_reply_list_watched(bs_server *server, bs_session *session);

#endif
