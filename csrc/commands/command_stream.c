#include "commands/command_stream.h"

#include <stdlib.h>
#include <string.h>

#include "commands/commands.h"
#include "commands/waiting.h"
#include "protocol/parser.h"
#include "queue/job_state.h"
#include "queue/job_waits.h"
#include "queue/tube_refs.h"
#include "server/replies.h"
#include "server/timeout_schedule.h"
#include "server/trace.h"
#include "workers/remote_commands.h"

enum { COMMANDS_PER_TURN = 1024 };

bool bs_stream_blocked(const bs_server *server, const bs_session *session)
{
    return session->waiting || session->parked || session->stalled || session->closing || session->broken ||
           bs_bytes_length(&session->out) > server->limits.output || (server->ending && !session->proxy);
}

/* The CR of the first CR LF, or NULL. */
static const char *find_end(const char *bytes, size_t length)
{
    const char *from = bytes;
    for (const char *lf; (lf = memchr(from, '\n', length - (size_t)(from - bytes))); from = lf + 1)
        if (lf > bytes && lf[-1] == '\r')
            return lf - 1;
    return NULL;
}

/* --- lines for proxies ------------------------------------------------------------------------------------ */

static bool execute_on_tube(bs_server *server, bs_session *session, const char *line, size_t length, bs_now now)
{
    const char *end = line + length;
    const char *id_at = memchr(line, ' ', length);
    const char *command = id_at ? memchr(id_at + 1, ' ', (size_t)(end - id_at - 1)) : NULL;
    if (!command || bs_refs_use(&server->queue, session, line, (size_t)(id_at - line)) != 0) {
        bs_session_break(server, session); /* no memory, or an invalid line */
        return true;
    }
    session->put_id = strtoull(id_at + 1, NULL, 10);
    bool done = bs_execute(server, session, command + 1, (size_t)(end - command - 1), now);
    session->put_id = 0;
    bs_refs_use_none(&server->queue, session);
    return done;
}

static void answer_query(bs_server *server, bs_session *session, const char *text, size_t length)
{
    if (length > 1 && text[0] == '+')
        bs_reply_number(server, session, "+", bs_tubes_find(&server->queue.tubes, text + 1, length - 1) != NULL,
                        BS_HOLD_NONE);
    else
        bs_reply_number(server, session, "#", session->reserved.count, BS_HOLD_NONE);
}

/* Executes a line that only proxies accept (remote_commands.h). Returns false if it must wait. */
static bool execute_for_proxy(bs_server *server, bs_session *session, const char *line, size_t length, bs_now now)
{
    switch (line[0]) {
    case BS_PROXY_TUBE:
        return execute_on_tube(server, session, line + 1, length - 1, now);
    case BS_PROXY_WATCH:
        if (length > 2 && line[1] == '-')
            (void)bs_refs_ignore(&server->queue, session, line + 2, length - 2);
        else if (length <= 2 || bs_refs_watch(&server->queue, session, line + 2, length - 2) != 0)
            bs_session_break(server, session);
        return true;
    case BS_PROXY_QUERY:
        answer_query(server, session, line + 1, length - 1);
        return true;
    case BS_PROXY_WITH:
    case BS_PROXY_MOVED:
        session->from_mover = line[0] == BS_PROXY_MOVED;
        if (!bs_execute_with(session, line + 1, length - 1, line[0] == BS_PROXY_MOVED))
            bs_session_break(server, session);
        return true;
    default:
        bs_reply_bytes(server, session, line + 1, length - 1, BS_HOLD_NONE);
        bs_reply_bytes(server, session, "\r\n", 2, BS_HOLD_NONE);
        return true;
    }
}

/* --- input ------------------------------------------------------------------------------------------------ */

/* These four take bytes from the front and return how many; 0: more are needed. */

static size_t take_line(bs_server *server, bs_session *session, const char *bytes, size_t length, bs_now now)
{
    const size_t limit = session->proxy ? (size_t)BS_PROXY_LINE_MAX : BS_LINE_MAX;
    size_t span = length < limit ? length : limit;
    const char *end = find_end(bytes, span);
    if (end) {
        size_t line = (size_t)(end - bytes);
        bool for_proxies = session->proxy && bytes[0] >= BS_PROXY_TUBE && bytes[0] <= BS_PROXY_MOVED;
        bool done = for_proxies ? execute_for_proxy(server, session, bytes, line, now)
                                : bs_execute(server, session, bytes, line, now);
        return done ? line + 2 : 0;
    }
    if (span < limit)
        return 0;
    session->input = BS_INPUT_LONG_LINE;
    bs_count_bad_line(server, session, bytes, span);
    return span - 1; /* the last byte may be the CR of the line end */
}

static size_t take_long_line(bs_server *server, bs_session *session, const char *bytes, size_t length, bs_now now)
{
    (void)now;
    const char *end = find_end(bytes, length);
    if (!end)
        return length - 1;
    session->input = BS_INPUT_LINE;
    session->verb = BS_UNTIMED;
    if (session->trace)
        bs_trace_command(server, session, NULL, NULL, 0);
    bs_remote_reply_in_order(server, session, "BAD_FORMAT\r\n");
    if (session->trace)
        bs_trace_executed(server, session, true);
    return (size_t)(end - bytes) + 2;
}

static size_t take_body(bs_server *server, bs_session *session, const char *bytes, size_t length, bs_now now)
{
    bs_job *job = session->incoming;
    size_t taken = length < session->remaining ? length : (size_t)session->remaining;
    memcpy(bs_job_body(job) + (job->body_size - session->remaining), bytes, taken);
    session->remaining -= taken;
    if (session->remaining == 0)
        bs_execute_body(server, session, now);
    return taken;
}

static size_t take_skipped(bs_server *server, bs_session *session, const char *bytes, size_t length, bs_now now)
{
    (void)bytes, (void)now;
    size_t taken = length < session->remaining ? length : (size_t)session->remaining;
    session->remaining -= taken;
    if (session->remaining == 0) {
        const uint32_t outstanding = bs_remote_outstanding(session);
        session->input = BS_INPUT_LINE;
        if (session->trace)
            bs_trace_body(server, session, 0, 0);
        bs_remote_reply_in_order(server, session, session->skip_reply);
        if (session->trace)
            bs_trace_executed(server, session, true);
        bs_command_done(server, session, outstanding);
    }
    return taken;
}

bs_now bs_distinct_time(bs_server *server, bs_now now)
{
    int64_t ahead = now.mono > server->latest ? 0 : server->latest + 1 - now.mono;
    server->latest = now.mono + ahead;
    return (bs_now){server->latest, now.wall + ahead};
}

static size_t execute_input(bs_server *server, bs_session *session, const char *bytes, size_t length, bs_now now)
{
    static size_t (*const take[])(bs_server *, bs_session *, const char *, size_t, bs_now) = {
        [BS_INPUT_LINE] = take_line,
        [BS_INPUT_LONG_LINE] = take_long_line,
        [BS_INPUT_BODY] = take_body,
        [BS_INPUT_SKIP] = take_skipped,
    };
    /* With a socket, here or at home, the round has read the clock once, but commands must have distinct times in the
     * order of their execution. Without a socket the caller's time is exact. */
    const bool real = session->fd >= 0 || session->proxy;
    size_t done = 0;
    int turns = COMMANDS_PER_TURN;
    session->backlog = false;
    while (done < length && !bs_stream_blocked(server, session)) {
        /* A fair share of the round. Without a socket the caller decides. */
        if (session->fd >= 0 && turns-- == 0) {
            session->backlog = true;
            bs_session_list_add(&server->more_input, session);
            break;
        }
        bs_now at = real ? bs_distinct_time(server, now) : now;
        size_t taken = take[session->input](server, session, bytes + done, length - done, at);
        if (taken == 0)
            break;
        done += taken;
        session->barrier_bytes -= taken < session->barrier_bytes ? taken : session->barrier_bytes;
    }
    return done;
}

static void end_wait(bs_server *server, bs_session *session, bs_now now)
{
    if (bs_job_wait_has_ended(session))
        return;
    bs_queue_stop_waiting(&server->queue, session);
    bs_execute_served(server, session, BS_SERVED_TIMED_OUT, NULL, now);
}

void bs_stream_look_ahead(bs_server *server, bs_session *session, const char *more, size_t length, bs_now now)
{
    static const char line[BS_ABORT_BYTES + 1] = "reserve-abort\r\n";
    size_t buffered = bs_bytes_length(&session->in);
    if (!session->waiting || session->proxy || buffered + length < BS_ABORT_BYTES)
        return;
    if (buffered > BS_ABORT_BYTES)
        buffered = BS_ABORT_BYTES;
    if ((buffered == 0 || memcmp(bs_bytes_data(&session->in), line, buffered) == 0) &&
        memcmp(more, line + buffered, BS_ABORT_BYTES - buffered) == 0)
        end_wait(server, session, now);
}

void bs_stream_feed(bs_server *server, bs_session *session, const char *bytes, size_t length, bs_now now)
{
    size_t done = 0;
    if (bs_bytes_length(&session->in) == 0)
        done = execute_input(server, session, bytes, length, now);
    if (done < length && bs_bytes_append(&session->in, bytes + done, length - done) != 0)
        bs_session_break(server, session);
    else if (done == 0)
        bs_stream_resume(server, session, now);
    bs_stream_look_ahead(server, session, "", 0, now);
    bs_timeouts_received(server, session, now);
}

void bs_stream_resume(bs_server *server, bs_session *session, bs_now now)
{
    size_t length = bs_bytes_length(&session->in);
    if (length > 0)
        bs_bytes_take(&session->in, execute_input(server, session, bs_bytes_data(&session->in), length, now));
    /* The rest of the input will never be a whole command. */
    if (session->drained && !session->backlog && !bs_stream_blocked(server, session) &&
        !bs_remote_awaits_replies(session)) {
        session->closing = true;
        bs_session_list_add(&server->dirty, session);
    }
    bs_stream_look_ahead(server, session, "", 0, now);
}

void bs_stream_finish(bs_server *server, bs_session *session, bool drained, bs_now now)
{
    session->eof = true;
    session->drained = session->drained || drained;
    if (session->waiting)
        end_wait(server, session, now);
    bs_stream_resume(server, session, now);
}
