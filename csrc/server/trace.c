#include "server/trace.h"

#include <stdlib.h>
#include <string.h>

const bs_command bs_trace_put = {.verb = BS_VERB_PUT};

void bs_trace_begin(bs_server *server, bs_session *session, const char *address, bs_now now)
{
    bs_trace *trace = calloc(1, sizeof *trace);
    session->trace = trace;
    if (!trace) {
        server->events.lost++;
        return;
    }
    trace->connection = __atomic_add_fetch(&server->queue.shared->last_connection, 1, __ATOMIC_RELAXED);
    trace->opened = now.mono;
    strncpy(trace->address, address, sizeof trace->address - 1);
    bs_slow_begin(&trace->slow, session);
}

void bs_trace_free(bs_trace *trace)
{
    if (trace)
        bs_slow_free(&trace->slow);
    free(trace);
}

/* Returns an event about this connection, or NULL if its level is not logged or the queue is full. */
static bs_event *event_of(bs_server *server, const bs_session *session, int kind, int level)
{
    bs_event *event = server->tracing.level >= level ? bs_events_trace(&server->events, kind) : NULL;
    if (event) {
        event->connection = session->trace->connection;
        memcpy(event->address, session->trace->address, sizeof event->address);
    }
    return event;
}

void bs_trace_accepted(bs_server *server, const bs_session *session)
{
    (void)event_of(server, session, BS_EVENT_ACCEPTED, BS_TRACE_CONNECTIONS);
}

void bs_trace_moved(bs_server *server, const bs_session *session, uint32_t shard)
{
    bs_event *event = event_of(server, session, BS_EVENT_MOVED, BS_TRACE_CONNECTIONS);
    if (event)
        event->shard = shard;
}

void bs_trace_closed(bs_server *server, const bs_session *session, bs_now now)
{
    bs_event *event = event_of(server, session, BS_EVENT_CLOSED, BS_TRACE_CONNECTIONS);
    if (!event)
        return;
    event->count = session->trace->commands;
    event->duration = now.mono - session->trace->opened;
    event->cause = session->broken ? BS_CLOSED_BROKEN : session->drained ? BS_CLOSED_BY_CLIENT : BS_CLOSED_QUIT;
}

static void copy_text(bs_event *event, const char *text, size_t length)
{
    event->length = (uint32_t)(length < sizeof event->text ? length : sizeof event->text);
    memcpy(event->text, text, event->length);
}

void bs_trace_line(bs_server *server, const bs_session *session, const bs_command *command, const char *line,
                   size_t length)
{
    bs_event *event = event_of(server, session, BS_EVENT_COMMAND, BS_TRACE_COMMANDS);
    if (!event)
        return;
    event->cut = !line;
    if (line)
        copy_text(event, line, length);
    if (!command)
        return;
    size_t tube_length;
    const char *tube = bs_command_tube(session, command, &tube_length);
    bs_verb_word(command->verb, event->word);
    event->job = command->id;
    memcpy(event->tube, tube, tube_length); /* the rest is zeros */
}

void bs_trace_job(bs_server *server, const bs_session *session, uint64_t job, uint64_t bytes)
{
    bs_event *event = event_of(server, session, BS_EVENT_JOB, BS_TRACE_COMMANDS);
    if (!event)
        return;
    event->job = job;
    event->count = bytes;
}

void bs_trace_unanswered(bs_server *server, bs_session *session, bool done)
{
    bs_trace *trace = session->trace;
    if (!done) {
        if (!trace->logged)
            trace->slow.since = server->tracing.now;
    } else {
        if (server->tracing.slow_ns > 0 && !session->closing)
            bs_slow_unanswered(server, session);
        trace->slow.since = 0;
    }
    trace->logged = !done;
}

void bs_trace_reply(bs_server *server, const bs_session *session, const char *line, size_t length)
{
    bs_event *event = event_of(server, session, BS_EVENT_REPLY, BS_TRACE_COMMANDS);
    if (!event)
        return;
    const char *end = memchr(line, '\r', length);
    copy_text(event, line, end ? (size_t)(end - line) : length);
}
