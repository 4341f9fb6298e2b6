/* What is logged of connections and commands, as far as somebody asked for it: events for Python.
 *
 * A session has a bs_trace while anything of this is wanted, and only at its home, so a command is told once, wherever
 * it is executed. Whoever has something to tell looks at session->trace first: that branch is all it costs when nothing
 * is wanted. Bodies are never told.
 */
#ifndef BS_TRACE_H
#define BS_TRACE_H

#include "protocol/parser.h"
#include "server/trace_state.h"

/* Is anything wanted? */
static inline bool bs_trace_wanted(const bs_server *server)
{
    return server->tracing.level > BS_TRACE_NOTHING || server->tracing.slow_ns > 0;
}

/* Gives a session at home its trace; without memory it has none, and a line counts as lost. */
void bs_trace_begin(bs_server *server, bs_session *session, const char *from, bs_now now);

/* The connection is a new one, or has come from worker `shard`. */
void bs_trace_accepted(bs_server *server, const bs_session *session);
void bs_trace_moved(bs_server *server, const bs_session *session, uint32_t shard);

/* It ends. */
void bs_trace_closed(bs_server *server, const bs_session *session, bs_now now);
void bs_trace_free(bs_trace *trace);

/* No reply has come of the execution of a line. */
void bs_trace_unanswered(bs_server *server, bs_session *session, bool done);

/* The body of a put has come. */
void bs_trace_job(bs_server *server, const bs_session *session, uint64_t job, uint64_t bytes);

/* A line as it is told; `command` is NULL if it is none, `line` if it is too long to be one. */
void bs_trace_line(bs_server *server, const bs_session *session, const bs_command *command, const char *line,
                   size_t length);

extern const bs_command bs_trace_put;

/* The rest is for sessions that have a trace. */

/* A line is to be executed. The second time that the same line is tried it is not told again. */
static inline void bs_trace_command(bs_server *server, const bs_session *session, const bs_command *command,
                                    const char *line, size_t length)
{
    bs_trace *trace = session->trace;
    server->tracing.command = command;
    trace->slow.answered = false;
    trace->commands += !trace->logged;
    if (server->tracing.level >= BS_TRACE_COMMANDS && !trace->logged)
        bs_trace_line(server, session, command, line, length);
}

/* A body is to be dealt with; `job` is 0 if nobody wants it. */
static inline void bs_trace_body(bs_server *server, const bs_session *session, uint64_t job, uint64_t bytes)
{
    server->tracing.command = &bs_trace_put;
    server->tracing.put = job;
    session->trace->slow.answered = false;
    if (server->tracing.level >= BS_TRACE_COMMANDS && job)
        bs_trace_job(server, session, job, bytes);
}

/* It has been done, unless it was a put whose body is to come; or it could not be done yet. */
static inline void bs_trace_executed(bs_server *server, bs_session *session, bool done)
{
    bs_trace *trace = session->trace;
    if (!done || (!trace->slow.answered && session->input == BS_INPUT_LINE))
        bs_trace_unanswered(server, session, done);
    else if (trace->logged)
        trace->logged = false, trace->slow.since = 0;
    server->tracing.command = NULL;
    server->tracing.put = 0;
}

/* The first line of a reply, with or without its CR LF. */
void bs_trace_reply(bs_server *server, const bs_session *session, const char *line, size_t length);

#endif
