#include "workers/reply_relay.h"

#include <stdlib.h>
#include <string.h>

#include "queue/queue.h"
#include "queue/waiters.h"
#include "server/remote_state.h"
#include "server/replies.h"
#include "server/slow_log.h"
#include "server/trace.h"
#include "workers/remote_commands.h"

enum { AWAY_MOVES = 32 }; /* so many replies in a row from one shard, and the session moves there */

/* Never at the same distance: whoever reserves and deletes in turn would be asked while it holds a job, each time. */
void bs_deliver_stay(bs_session *session)
{
    bs_route *route = session->route;
    uint32_t replies = 3 + route->stayed++ * 7 % 11;
    route->moving = false;
    route->away = AWAY_MOVES - replies;
}

static void ask_to_move(bs_server *server, bs_session *session)
{
    const bs_route *route = session->route;
    bs_queued_upcall *queued = bs_upcalls_add(&server->upcalls, BS_UPCALL_MIGRATE, route->away_shard, session->id);
    for (uint32_t shard = 0; shard < server->queue.workers; shard++) {
        char one = (char)shard;
        if (bs_shard_set_has(route->held, shard) && bs_bytes_append(&queued->bytes, &one, 1) != 0) {
            bs_break_off(server, session);
            return;
        }
    }
    session->route->moving = true;
    session->parked = true;
}

/* The other worker has done all of the reserve, and the wait here was only for its time. */
static void reserve_answered(bs_server *server, bs_session *session)
{
    if (session->claiming)
        bs_queue_stop_waiting(&server->queue, session);
    session->claiming = session->parked = false;
    bs_queued_upcall *queued = bs_upcalls_add(&server->upcalls, BS_UPCALL_CLAIM_ENDED, server->queue.shard, session->id);
    queued->upcall.token = session->route->token;
    queued->upcall.how = BS_CLAIM_ANSWERED;
}

static void answered(bs_server *server, bs_session *session, uint32_t shard)
{
    bs_route *route = session->route;
    if (session->parked)
        bs_latency_answered(&server->latency, session, session->verb, session->since);
    else
        bs_route_answered(server, session);
    if (session->trace)
        bs_slow_replied(server, session, &session->trace->slow, route->brings, shard);
    route->brings = 0;
    route->echoes = false;
    if (route->away_shard != shard)
        route->away = 0;
    route->away_shard = shard;
    route->away++;
    if (--route->asked > 0)
        return;
    route->asked_bytes = 0;
    session->stalled = false;
    bs_session_list_add(&server->runnable, session);
    if (session->parked)
        reserve_answered(server, session);
    if (route->away >= AWAY_MOVES && session->fd >= 0 && session->reserved.count == 0)
        ask_to_move(server, session);
}

/* Bytes of the body that follows this first line. */
static uint64_t body_after(const char *head)
{
    const char *number = NULL;
    if (strncmp(head, "OK ", 3) == 0)
        number = head + 3;
    else if (strncmp(head, "RESERVED ", 9) == 0)
        number = strchr(head + 9, ' ');
    else if (strncmp(head, "FOUND ", 6) == 0)
        number = strchr(head + 6, ' ');
    return number ? strtoull(number, NULL, 10) + 2 : 0;
}

/* The first line of a reply is complete. */
static void head_complete(bs_server *server, bs_session *session, uint32_t shard)
{
    bs_route *route = session->route;
    bs_reply_bytes(server, session, route->head, route->head_length, BS_HOLD_NONE);
    if (session->trace)
        bs_trace_reply(server, session, route->head, route->head_length);
    route->head[route->head_length - 2] = '\0';
    route->left = body_after(route->head);
    if (strncmp(route->head, "RESERVED ", 9) == 0) {
        bs_shard_set_add(route->held, shard);
        bs_queue_count_worker(&server->queue, session);
        route->brings = strtoull(route->head + 9, NULL, 10);
    }
    route->head_length = 0;
}

/* A reply that is no client's. */
static void aside_complete(bs_server *server, bs_session *session, uint32_t shard)
{
    bs_route *route = session->route;
    route->head[route->head_length - 1] = '\0';
    route->head_length = 0;
    bs_route_answered(server, session);
    if (--route->asked == 0) {
        route->asked_bytes = 0;
        session->stalled = false;
        bs_session_list_add(&server->runnable, session);
    }
    bs_route_told_aside(server, session, shard, route->head);
}

static size_t take_head(bs_server *server, bs_session *session, uint32_t shard, const char *bytes, size_t length)
{
    bs_route *route = session->route;
    const char *lf = memchr(bytes, '\n', length);
    size_t taken = lf ? (size_t)(lf - bytes) + 1 : length;
    if (route->head_length + taken > sizeof route->head) {
        bs_break_off(server, session); /* no reply is that long */
        return length;
    }
    memcpy(route->head + route->head_length, bytes, taken);
    route->head_length = (uint8_t)(route->head_length + taken);
    if (lf && route->aside) {
        aside_complete(server, session, shard);
        return taken;
    }
    if (lf)
        head_complete(server, session, shard);
    if (lf && route->left == 0)
        answered(server, session, shard);
    return taken;
}

void bs_deliver(bs_server *server, bs_session *session, uint32_t shard, const char *bytes, size_t length)
{
    bs_route *route = session->route;
    while (length > 0 && !session->broken) {
        size_t taken;
        if (!bs_route_owed(session) || route->asked_shard != shard) {
            bs_break_off(server, session); /* nobody has asked: what follows cannot be right either */
            return;
        }
        if (route->left > 0) {
            taken = length < route->left ? length : (size_t)route->left;
            bs_reply_bytes(server, session, bytes, taken, BS_HOLD_NONE);
            route->left -= taken;
            if (route->left == 0)
                answered(server, session, shard);
        } else {
            taken = take_head(server, session, shard, bytes, length);
        }
        bytes += taken;
        length -= taken;
    }
}
