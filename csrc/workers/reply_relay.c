/* Relays the output of proxies to clients at home: finds the end of each reply, and acts on it.
 *
 * Bytes arrive in any pieces. A client gets the first line of a reply only when it is complete, so that a reply whose
 * worker goes down can be replaced.
 */

#include <stdlib.h>
#include <string.h>

#include "queue/job_state.h"
#include "queue/queue.h"
#include "server/remote_state.h"
#include "server/replies.h"
#include "server/slow_log.h"
#include "server/trace.h"
#include "workers/migration_requests.h"
#include "workers/remote_commands.h"
#include "workers/remote_moves.h"

/* A wait here was only for the timeout of a reserve that the other worker has executed. */
static void reserve_answered(bs_server *server, bs_session *session)
{
    if (session->claiming)
        bs_queue_stop_waiting(&server->queue, session);
    session->claiming = session->parked = false;
    bs_reserve_on_done(&session->remote->reserve);
}

static void reply_complete(bs_server *server, bs_session *session, uint32_t shard)
{
    bs_remote *remote = session->remote;
    if (session->parked)
        bs_latency_replied(&server->latency, session, session->verb, session->since);
    else
        bs_remote_replied(server, session);
    if (session->trace)
        bs_slow_replied(server, session, &session->trace->slow, remote->reserved_job, shard);
    remote->reserved_job = 0;
    remote->echo_first = false;
    bs_migration_count_reply(remote, shard);
    if (--remote->outstanding > 0)
        return;
    remote->outstanding_bytes = 0;
    session->stalled = false;
    if (session->mover)
        return;
    bs_session_list_add(&server->runnable, session);
    if (session->parked)
        reserve_answered(server, session);
    bs_migration_request_if_due(server, session);
}

/* The bytes of the body after this first line. */
static uint64_t body_after(const char *head)
{
    const char *number = NULL;
    if (strncmp(head, "OK ", 3) == 0)
        number = head + 3;
    else if (strncmp(head, "RESERVED ", 9) == 0)
        number = strchr(head + 9, ' ');
    else if (strncmp(head, "FOUND ", 6) == 0)
        number = strchr(head + 6, ' ');
    else if (strncmp(head, "JOB ", 4) == 0)
        number = strrchr(head, ' ');
    return number ? strtoull(number, NULL, 10) + 2 : 0;
}

static void head_complete(bs_server *server, bs_session *session, uint32_t shard)
{
    bs_remote *remote = session->remote;
    if (session->mover) {
        remote->head[remote->head_length - 2] = '\0';
        bs_remote_move_answered(server, shard, remote->head);
        remote->head_length = 0;
        return;
    }
    bs_reply_bytes(server, session, remote->head, remote->head_length, BS_HOLD_NONE);
    if (session->trace && remote->batch_left == 0)
        bs_trace_reply(server, session, remote->head, remote->head_length);
    remote->head[remote->head_length - 2] = '\0';
    remote->body_left = body_after(remote->head);
    const bool of_batch = strncmp(remote->head, "JOB ", 4) == 0;
    if (strncmp(remote->head, "BATCH ", 6) == 0)
        remote->batch_left = (uint32_t)strtoul(remote->head + 6, NULL, 10);
    if (of_batch || strncmp(remote->head, "RESERVED ", 9) == 0) {
        bs_shard_set_add(&remote->holding_shards, shard);
        bs_queue_count_worker(&server->queue, session);
        if (remote->reserved_job == 0)
            remote->reserved_job = strtoull(strchr(remote->head, ' '), NULL, 10);
    }
    remote->head_length = 0;
}

static void query_complete(bs_server *server, bs_session *session, uint32_t shard)
{
    bs_remote *remote = session->remote;
    remote->head[remote->head_length - 1] = '\0';
    remote->head_length = 0;
    bs_remote_replied(server, session);
    if (--remote->outstanding == 0) {
        remote->outstanding_bytes = 0;
        session->stalled = false;
        bs_session_list_add(&server->runnable, session);
    }
    bs_remote_query_answered(server, session, shard, remote->head);
}

static size_t take_head(bs_server *server, bs_session *session, uint32_t shard, const char *bytes, size_t length)
{
    bs_remote *remote = session->remote;
    const char *lf = memchr(bytes, '\n', length);
    size_t taken = lf ? (size_t)(lf - bytes) + 1 : length;
    if (remote->head_length + taken > sizeof remote->head) {
        bs_session_break(server, session); /* no reply has such a long line */
        return length;
    }
    memcpy(remote->head + remote->head_length, bytes, taken);
    remote->head_length = (uint8_t)(remote->head_length + taken);
    if (lf && remote->query) {
        query_complete(server, session, shard);
        return taken;
    }
    if (lf)
        head_complete(server, session, shard);
    if (lf && remote->body_left == 0 && remote->batch_left == 0)
        reply_complete(server, session, shard);
    return taken;
}

void bs_relay_output(bs_server *server, bs_session *session, uint32_t shard, const char *bytes, size_t length)
{
    bs_remote *remote = session->remote;
    while (length > 0 && !session->broken) {
        size_t taken;
        if (!bs_remote_awaits_replies(session) || remote->outstanding_shard != shard) {
            bs_session_break(server, session); /* nothing is outstanding: later bytes cannot be right either */
            return;
        }
        if (remote->body_left > 0) {
            taken = length < remote->body_left ? length : (size_t)remote->body_left;
            bs_reply_bytes(server, session, bytes, taken, BS_HOLD_NONE);
            remote->body_left -= taken;
            if (remote->body_left == 0 && (remote->batch_left == 0 || --remote->batch_left == 0))
                reply_complete(server, session, shard);
        } else {
            taken = take_head(server, session, shard, bytes, length);
        }
        bytes += taken;
        length -= taken;
    }
}
