/* Events for Python about connections and commands, as far as they are logged.
 *
 * A session has a bs_trace while anything is logged, and only at its home worker, so each command is logged once.
 * Callers check session->trace first: that branch is the only cost when nothing is logged. Bodies are never logged.
 */
#ifndef BS_TRACE_H
#define BS_TRACE_H

#include "protocol/parser.h"
#include "server/slow_log.h"

static inline bool bs_trace_enabled(const bs_server *server)
{
    return server->tracing.level > BS_TRACE_NOTHING || server->tracing.slow_ns > 0;
}

/* Gives a session its trace. Without memory it has none, and a line counts as lost. */
void bs_trace_begin(bs_server *server, bs_session *session, const char *address, bs_now now);

/* A new connection, or one that has migrated from worker `shard`. */
void bs_trace_accepted(bs_server *server, const bs_session *session);
void bs_trace_moved(bs_server *server, const bs_session *session, uint32_t shard);

void bs_trace_closed(bs_server *server, const bs_session *session, bs_now now);
void bs_trace_free(bs_trace *trace);

/* The execution of a line has produced no reply. */
void bs_trace_unanswered(bs_server *server, bs_session *session, bool done);

/* The body of a put has arrived. */
void bs_trace_job(bs_server *server, const bs_session *session, uint64_t job, uint64_t bytes);

/* Logs a line; `command` is NULL if it is no command, `line` if it is too long. */
void bs_trace_line(bs_server *server, const bs_session *session, const bs_command *command, const char *line,
                   size_t length);

extern const bs_command bs_trace_put;

/* The following functions require a trace. */

/* Before the execution of a line. A line that was stalled is not logged again. */
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

/* Before the execution of a body; `job` is 0 if it is refused. */
static inline void bs_trace_body(bs_server *server, const bs_session *session, uint64_t job, uint64_t bytes)
{
    server->tracing.command = &bs_trace_put;
    server->tracing.put = job;
    session->trace->slow.answered = false;
    if (server->tracing.level >= BS_TRACE_COMMANDS && job)
        bs_trace_job(server, session, job, bytes);
}

/* After the execution, unless the body of a put is to come; `done` is false if the line is stalled. */
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

/* Logs the first line of a reply, with or without its CR LF. */
void bs_trace_reply(bs_server *server, const bs_session *session, const char *line, size_t length);

#endif
