/* What each command does, and what it answers. */
#ifndef BS_COMMANDS_H
#define BS_COMMANDS_H

#include "parser.h"
#include "server.h"

/* Executes one command line, without its CR LF. */
void bs_execute(bs_server *server, bs_session *session, const char *line, size_t length, bs_now now);

/* The body of session->incoming is complete. */
void bs_execute_body(bs_server *server, bs_session *session, bs_now now);

/* A reserve has ended: the queue's `served`, with the server as context. */
void bs_execute_served(void *context, bs_session *session, bs_served how, bs_job *job);

#endif
