#include "runtime/client_timeouts.h"

#include "workers/remote_commands.h"
#include "protocol/command_stream.h"

static const bs_heap_kind kind = {offsetof(bs_session, patience), offsetof(bs_session, id)};

static bool wanted(const bs_server *server)
{
    const bs_limits *limits = &server->limits;
    return limits->idle_timeout_ns || limits->send_timeout_ns || limits->output_timeout_ns;
}

/* Half a line or half a body is here; or whole commands that may not be executed now. */
static bool begun(const bs_session *session)
{
    return session->input != BS_INPUT_LINE || bs_bytes_length(&session->in) > 0;
}

static bool may_not_go_on(const bs_server *server, const bs_session *session)
{
    return bs_stream_blocked(server, session) || session->backlog;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t silent_since(const bs_session *session)
{
    return later(later(session->heard, session->told), session->excused);
}

/* When it has to be looked at, at the latest. */
static int64_t time_of(const bs_server *server, const bs_session *session)
{
    const bs_limits *limits = &server->limits;
    int64_t at = INT64_MAX;
    if (limits->idle_timeout_ns)
        at = silent_since(session) + limits->idle_timeout_ns;
    if (limits->send_timeout_ns && begun(session) && session->heard + limits->send_timeout_ns < at)
        at = session->heard + limits->send_timeout_ns;
    if (limits->output_timeout_ns && session->wants_out && session->told + limits->output_timeout_ns < at)
        at = session->told + limits->output_timeout_ns;
    return at;
}

static void look_by(bs_server *server, bs_session *session, int64_t at)
{
    if (at == INT64_MAX || session->proxy)
        return;
    if (session->patience == BS_NO_PLACE)
        bs_heap_push(&server->patience, &kind, at, session);
    else if (server->patience.slots[session->patience].key > at)
        bs_heap_change(&server->patience, &kind, session->patience, at);
}

static void schedule(bs_server *server, bs_session *session)
{
    look_by(server, session, time_of(server, session));
}

void bs_patience_begin(bs_server *server, bs_session *session, bs_now now)
{
    session->heard = session->told = session->excused = now.mono;
    if (wanted(server))
        schedule(server, session);
}

void bs_patience_heard(bs_server *server, bs_session *session, bs_now now)
{
    session->heard = now.mono;
    if (server->limits.send_timeout_ns)
        schedule(server, session);
}

void bs_patience_stuck(bs_server *server, bs_session *session, bs_now now)
{
    session->told = now.mono;
    if (server->limits.output_timeout_ns)
        look_by(server, session, now.mono + server->limits.output_timeout_ns);
}

void bs_patience_again(bs_server *server, bs_session *session)
{
    if (wanted(server))
        schedule(server, session);
}

void bs_patience_forget(bs_server *server, bs_session *session)
{
    if (session->patience != BS_NO_PLACE)
        bs_heap_remove(&server->patience, &kind, session->patience);
}

/* The one walk over all sessions: an operator has asked for it. */
void bs_patience_changed(bs_server *server, bs_now now)
{
    const bs_sessions *sessions = &server->queue.sessions;
    for (uint32_t i = 0; i < sessions->count; i++) {
        bs_session *session = sessions->slots[i];
        if (!session)
            continue;
        bs_patience_forget(server, session);
        if (!session->proxy)
            bs_patience_begin(server, session, now);
    }
}

/* --- looking at one that is due --------------------------------------------------------------------- */

/* A shard where it may hold a job; -1: none. */
static int may_hold_at(const bs_session *session)
{
    for (uint32_t shard = 0; session->route && shard < BS_MAX_WORKERS; shard++)
        if (bs_shard_set_has(session->route->held, shard))
            return (int)shard;
    return -1;
}

static bool is_excused(const bs_server *server, const bs_session *session)
{
    return may_not_go_on(server, session) || session->reserved.count > 0 ||
           bs_route_owed(session) || (session->route && session->route->holds_elsewhere) ||
           (bs_bytes_length(&session->out) > 0 && !session->wants_out); /* it waits for the disk, or leaves now */
}

/* It was silent for its time. True: it is to end. */
static bool too_silent(bs_server *server, bs_session *session, bs_now now)
{
    bool excused = is_excused(server, session);
    int shard = excused ? -1 : may_hold_at(session);
    if (!excused && shard < 0)
        return true;
    if (session->route)
        session->route->holds_elsewhere = false;
    if (shard < 0 || !bs_route_ask_holds(server, session, (uint32_t)shard)) {
        session->excused = now.mono;
        schedule(server, session);
    }
    return false;
}

/* Not in the heap. True: it is to end. */
static bool look_at(bs_server *server, bs_session *session, bs_now now)
{
    const bs_limits *limits = &server->limits;
    if (limits->output_timeout_ns && session->wants_out && session->told + limits->output_timeout_ns <= now.mono)
        return true;
    if (limits->send_timeout_ns && begun(session) && session->heard + limits->send_timeout_ns <= now.mono) {
        if (!may_not_go_on(server, session))
            return true;
        session->heard = now.mono; /* it was not the client who kept it waiting */
    }
    if (limits->idle_timeout_ns && silent_since(session) + limits->idle_timeout_ns <= now.mono)
        return too_silent(server, session, now);
    schedule(server, session);
    return false;
}

int64_t bs_patience_tick(bs_core *core, bs_now now)
{
    bs_server *server = &core->server;
    int64_t next;
    server->seen = now.mono;
    while ((next = bs_heap_first_key(&server->patience)) <= now.mono && next != INT64_MAX) {
        bs_session *session = bs_heap_first(&server->patience);
        bs_patience_forget(server, session);
        if (!look_at(server, session, now))
            continue;
        server->queue.counters->timed_out_connections++;
        bs_core_drop(core, session, now);
    }
    return next;
}
