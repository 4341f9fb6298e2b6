/* Commands whose work grows with the number of jobs: list-jobs and truncate.
 *
 * The client that sends one is parked until it has the reply. Each round executes one step of one command, in turn, so
 * that other clients wait for one step at a time, however many commands are sent. A truncate whose client has gone is
 * executed to its end.
 */
#ifndef BS_LONG_COMMANDS_H
#define BS_LONG_COMMANDS_H

#include "protocol/parser.h"
#include "server/server_state.h"

/* Parks the session until its command is executed. Returns false without memory. */
bool bs_long_command_begin(bs_server *server, bs_session *session, const bs_command *command);

/* Executes one step, if there is a command. */
void bs_long_commands_run(bs_server *server, bs_now now);

/* Executes those of sessions without sockets, whose caller decides how long it waits. */
void bs_long_commands_run_unconnected(bs_server *server, bs_now now);

/* Replies to list-jobs with a page of the jobs of a tube, by id (list_jobs.c). */
void bs_reply_list_jobs(bs_server *server, bs_session *session, const bs_command *command, bs_now now);

void bs_long_commands_free(bs_server *server);

#endif
