#include "server/timeout_schedule.h"

static const bs_heap_kind kind = {offsetof(bs_session, timeout_place), offsetof(bs_session, id)};

bool bs_timeouts_input_begun(const bs_session *session)
{
    return session->input != BS_INPUT_LINE || bs_bytes_length(&session->in) > 0;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t bs_timeouts_idle_since(const bs_session *session)
{
    return later(later(session->received_at, session->sent_at), session->not_idle_at);
}

static int64_t earliest_timeout(const bs_server *server, const bs_session *session)
{
    const bs_limits *limits = &server->limits;
    int64_t at = INT64_MAX;
    if (limits->idle_timeout_ns)
        at = bs_timeouts_idle_since(session) + limits->idle_timeout_ns;
    if (limits->send_timeout_ns && bs_timeouts_input_begun(session) &&
        session->received_at + limits->send_timeout_ns < at)
        at = session->received_at + limits->send_timeout_ns;
    if (limits->output_timeout_ns && session->wants_out && session->sent_at + limits->output_timeout_ns < at)
        at = session->sent_at + limits->output_timeout_ns;
    return at;
}

void bs_timeouts_schedule(bs_server *server, bs_session *session)
{
    const int64_t at = earliest_timeout(server, session);
    if (at == INT64_MAX || session->proxy)
        return;
    if (session->timeout_place == BS_NO_PLACE)
        bs_heap_push(&server->timeouts, &kind, at, session);
    else if (server->timeouts.slots[session->timeout_place].key > at)
        bs_heap_change(&server->timeouts, &kind, session->timeout_place, at);
}

void bs_timeouts_begin(bs_server *server, bs_session *session, bs_now now)
{
    session->received_at = session->sent_at = session->not_idle_at = now.mono;
    bs_timeouts_schedule(server, session);
}

void bs_timeouts_received(bs_server *server, bs_session *session, bs_now now)
{
    session->received_at = now.mono;
    if (server->limits.send_timeout_ns)
        bs_timeouts_schedule(server, session);
}

void bs_timeouts_blocked(bs_server *server, bs_session *session, bs_now now)
{
    session->sent_at = now.mono;
    bs_timeouts_schedule(server, session);
}

void bs_timeouts_remove(bs_server *server, bs_session *session)
{
    if (session->timeout_place != BS_NO_PLACE)
        bs_heap_remove(&server->timeouts, &kind, session->timeout_place);
}

/* The only walk over all sessions, after an operator's change. */
void bs_timeouts_changed(bs_server *server, bs_now now)
{
    const bs_sessions *sessions = &server->queue.sessions;
    for (uint32_t i = 0; i < sessions->count; i++) {
        bs_session *session = sessions->slots[i];
        if (!session)
            continue;
        bs_timeouts_remove(server, session);
        if (!session->proxy)
            bs_timeouts_begin(server, session, now);
    }
}
