/* Closes clients that exceed a timeout: idle clients, clients that do not finish a command, clients that do not read.
 *
 * A client is idle since the last byte in either direction. The idle timeout does not apply while its session waits in
 * a reserve, holds a job on any shard, or has an outstanding reply; after that it starts again.
 */

#include "commands/command_stream.h"
#include "runtime/connection.h"
#include "server/remote_state.h"
#include "server/timeout_schedule.h"
#include "workers/remote_commands.h"

static bool cannot_continue(const bs_server *server, const bs_session *session)
{
    return bs_stream_blocked(server, session) || session->backlog;
}

/* A shard where it may hold a job; -1: none. */
static int may_hold_at(const bs_session *session)
{
    return session->remote ? bs_shard_set_next(&session->remote->holding_shards, 0) : -1;
}

/* Returns whether the idle timeout does not apply. */
static bool is_exempt(const bs_server *server, const bs_session *session)
{
    return cannot_continue(server, session) || session->reserved.count > 0 ||
           bs_remote_awaits_replies(session) || (session->remote && session->remote->holds_remote_job) ||
           (bs_bytes_length(&session->out) > 0 && !session->wants_out); /* the output waits for a sync, or leaves in
                                                                         * this round */
}

/* Returns true if the session must end. */
static bool idle_too_long(bs_server *server, bs_session *session, bs_now now)
{
    const bool exempt = is_exempt(server, session);
    int shard = exempt ? -1 : may_hold_at(session);
    if (!exempt && shard < 0)
        return true;
    if (session->remote)
        session->remote->holds_remote_job = false;
    /* The rest of a body could arrive before the answer to a query, and its put has an answer of another shard. */
    const bool in_body = session->input != BS_INPUT_LINE;
    if (shard < 0 || in_body || !bs_remote_query_holds(server, session, (uint32_t)shard)) {
        session->not_idle_at = now.mono;
        bs_timeouts_schedule(server, session);
    }
    return false;
}

/* The session is not in the heap. Returns true if it must end. */
static bool is_timed_out(bs_server *server, bs_session *session, bs_now now)
{
    const bs_limits *limits = &server->limits;
    if (limits->output_timeout_ns && session->wants_out && session->sent_at + limits->output_timeout_ns <= now.mono)
        return true;
    if (limits->send_timeout_ns && bs_timeouts_input_begun(session) &&
        session->received_at + limits->send_timeout_ns <= now.mono) {
        if (!cannot_continue(server, session))
            return true;
        session->received_at = now.mono; /* the server made it wait */
    }
    if (limits->idle_timeout_ns && bs_timeouts_idle_since(session) + limits->idle_timeout_ns <= now.mono)
        return idle_too_long(server, session, now);
    bs_timeouts_schedule(server, session);
    return false;
}

int64_t bs_timeouts_tick(bs_core *core, bs_now now)
{
    bs_server *server = &core->server;
    int64_t next;
    server->timeouts_checked = now.mono;
    while ((next = bs_heap_first_key(&server->timeouts)) <= now.mono && next != INT64_MAX) {
        bs_session *session = bs_heap_first(&server->timeouts);
        bs_timeouts_remove(server, session);
        if (!is_timed_out(server, session, now))
            continue;
        server->queue.counters->timed_out_connections++;
        bs_core_end_session(core, session, now);
    }
    return next;
}
