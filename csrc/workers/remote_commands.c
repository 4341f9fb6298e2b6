#include "workers/remote_commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "jobs/job_owners.h"
#include "queue/job_lifetime.h"
#include "queue/tube_refs.h"
#include "server/replies.h"
#include "server/timeout_schedule.h"
#include "workers/barrier.h"
#include "workers/global_limits.h"

enum {
    OUTSTANDING_BYTES_MAX = 1 << 20, /* bytes that one session has sent, or expects, for outstanding replies */
    LIST_BYTES = 1 << 18 /* of a long reply to list-jobs */
};

void bs_remote_expect(bs_session *session, uint32_t shard)
{
    session->remote->outstanding = 1;
    session->remote->outstanding_shard = shard;
}

bool bs_remote_may_reply(bs_session *session)
{
    if (!bs_remote_awaits_replies(session))
        return true;
    session->stalled = true;
    return false;
}

/* --- destinations ----------------------------------------------------------------------------------------- */

int bs_remote_owner_of(bs_server *server, uint64_t id)
{
    bs_queue *queue = &server->queue;
    if (bs_job_table_seek(&queue->jobs, id))
        return (int)queue->shard;
    int owner = bs_owner_of(queue->shared, id);
    if (owner != BS_OWNER_UNKNOWN)
        return owner;
    /* No worker has an id that was never put, so this one replies NOT_FOUND. */
    const uint64_t last_id = __atomic_load_n(&queue->shared->last_id, __ATOMIC_RELAXED);
    return id == 0 || id > last_id ? (int)queue->shard : BS_OWNER_UNKNOWN;
}

static int destination(bs_server *server, const bs_session *session, const bs_command *command)
{
    const bs_queue *queue = &server->queue;
    switch (command->verb) {
    case BS_VERB_PUT:
    case BS_VERB_KICK:
    case BS_VERB_PEEK_READY:
    case BS_VERB_PEEK_DELAYED:
    case BS_VERB_PEEK_BURIED:
        return (int)(session->use->remote ? session->use->shard : queue->shard);
    case BS_VERB_STATS_TUBE:
    case BS_VERB_PAUSE_TUBE:
    case BS_VERB_LIST_JOBS:
    case BS_VERB_TRUNCATE:
        if (command->malformed)
            return (int)queue->shard;
        return (int)bs_shard_of(command->name, command->name_length, queue->workers, queue->colocate);
    case BS_VERB_PEEK:
    case BS_VERB_RESERVE_JOB:
    case BS_VERB_DELETE:
    case BS_VERB_RELEASE:
    case BS_VERB_BURY:
    case BS_VERB_KICK_JOB:
    case BS_VERB_TOUCH:
    case BS_VERB_MOVE:
    case BS_VERB_STATS_JOB:
        return bs_remote_owner_of(server, command->id);
    default:
        return (int)queue->shard;
    }
}

/* --- requests --------------------------------------------------------------------------------------------- */

/* Feeds the session's proxy. 0, or -ENOMEM and nothing is fed. Bytes for a worker that is down are dropped. */
static int feed(bs_server *server, bs_session *session, uint32_t shard, const char *head, size_t head_length,
                const char *bytes, size_t length)
{
    if (server->peers[shard] == BS_PEER_DOWN)
        return 0;
    bs_counts_send(server);
    bs_shard_set_add(&session->remote->contacted_shards, shard);
    return bs_outbox_add(&server->outboxes[shard], BS_FRAME_FEED, session->id, head, head_length, bytes, length);
}

void bs_remote_send_step(bs_server *server, const bs_session *session, uint32_t shard, uint32_t kind,
                         bs_reserve_step step)
{
    bs_counts_send(server);
    bs_shard_set_add(&session->remote->contacted_shards, shard);
    bs_outbox_must_add(&server->outboxes[shard], kind, session->id, &step, sizeof step);
}

void bs_remote_respond_step(bs_server *server, const bs_session *proxy, uint32_t kind, bs_reserve_step step)
{
    bs_outbox_must_add(&server->outboxes[proxy->peer], kind, proxy->home, &step, sizeof step);
}

static void time_request(bs_outstanding_times *timed, uint32_t before, uint32_t verb, int64_t since)
{
    if (before == 0)
        timed->first = timed->count = timed->more = 0;
    timed->more = timed->more || timed->count == BS_OUTSTANDING_MAX;
    if (timed->more)
        return;
    uint32_t at = (timed->first + (uint32_t)timed->count++) % BS_OUTSTANDING_MAX;
    timed->since_us[at] = (uint32_t)(since / BS_MICROSECOND);
    timed->verb[at] = (uint8_t)verb;
}

void bs_remote_replied(bs_server *server, bs_session *session)
{
    bs_outstanding_times *timed = &session->remote->timed;
    if (timed->count == 0)
        return;
    const int64_t round = server->latency.round;
    const uint32_t age_us = (uint32_t)(round / BS_MICROSECOND) - timed->since_us[timed->first];
    bs_latency_replied(&server->latency, session, timed->verb[timed->first], round - (int64_t)age_us * BS_MICROSECOND);
    timed->first = (uint8_t)((timed->first + 1) % BS_OUTSTANDING_MAX);
    timed->count--;
}

static int request(bs_server *server, bs_session *session, uint32_t shard, const char *head, size_t head_length,
               const char *bytes, size_t length)
{
    bs_remote *remote = bs_remote_of(server, session);
    if (!remote)
        return -ENOMEM;
    if (feed(server, session, shard, head, head_length, bytes, length) != 0)
        return -ENOMEM;
    time_request(&remote->timed, remote->outstanding, session->verb, server->latency.round);
    remote->outstanding++;
    remote->outstanding_shard = shard;
    remote->outstanding_bytes += head_length + length;
    return 0;
}

/* If not, the session is stalled. */
static bool may_send(const bs_server *server, bs_session *session, uint32_t shard)
{
    const bs_remote *remote = session->remote;
    bool other = remote && remote->outstanding > 0 && remote->outstanding_shard != shard;
    bool enough = remote && (remote->outstanding >= BS_OUTSTANDING_MAX ||
                             remote->outstanding_bytes >= OUTSTANDING_BYTES_MAX);
    if (other || enough || server->peers[shard] == BS_PEER_BUSY)
        session->stalled = true;
    return !session->stalled;
}

static void send_line(bs_server *server, bs_session *session, const bs_command *command, uint32_t shard,
                     const char *line, size_t length)
{
    char text[BS_PROXY_LINE_MAX];
    const bool peek_of_tube = command->verb >= BS_VERB_PEEK_READY && command->verb <= BS_VERB_PEEK_BURIED;
    const bool brings_job = peek_of_tube || command->verb == BS_VERB_PEEK || command->verb == BS_VERB_RESERVE_JOB;
    const bool of_tube = peek_of_tube || command->verb == BS_VERB_KICK;
    int head = of_tube ? snprintf(text, sizeof text, "%c%s 0 ", BS_PROXY_TUBE, session->use->name) : 0;
    memcpy(text + head, line, length);
    memcpy(text + (size_t)head + length, "\r\n", 2);
    if (request(server, session, shard, text, (size_t)head + length + 2, NULL, 0) != 0)
        bs_reply(server, session, "OUT_OF_MEMORY\r\n", BS_HOLD_NONE);
    else if (brings_job)
        session->remote->outstanding_bytes += server->max_job_size;
    else if (command->verb == BS_VERB_LIST_JOBS)
        session->remote->outstanding_bytes += LIST_BYTES;
}

static bs_routing park(bs_session *session)
{
    session->parked = true;
    return BS_ROUTE_SENT;
}

static bool send_query(bs_server *server, bs_session *session, uint32_t shard, const char *text, size_t length)
{
    const char head = BS_PROXY_QUERY;
    const uint8_t verb = session->verb;
    session->verb = BS_UNTIMED;
    bool sent = bs_remote_of(server, session) && request(server, session, shard, &head, 1, text, length) == 0;
    session->verb = verb;
    if (!sent)
        return false;
    session->remote->query = true;
    return true;
}

bool bs_remote_query_holds(bs_server *server, bs_session *session, uint32_t shard)
{
    return !bs_remote_awaits_replies(session) && server->peers[shard] != BS_PEER_DOWN &&
           send_query(server, session, shard, "#\r\n", 3);
}

/* Only its own worker knows whether a tube exists. False: a query is sent, and the session is stalled. */
static bool tube_is_known(bs_server *server, bs_session *session, const bs_command *command)
{
    char text[BS_PROXY_LINE_MAX];
    const bs_queue *queue = &server->queue;
    uint32_t shard = bs_shard_of(command->name, command->name_length, queue->workers, queue->colocate);
    if (shard == queue->shard || server->peers[shard] == BS_PEER_DOWN ||
        bs_limits_allow_tube(server, session, command->name, command->name_length) ||
        (session->remote && session->remote->tube_exists != BS_TUBE_UNKNOWN))
        return true;
    int length = snprintf(text, sizeof text, "+%.*s\r\n", (int)command->name_length, command->name);
    if (!send_query(server, session, shard, text, (size_t)length))
        return true; /* no memory for a query: the command is refused */
    session->stalled = true;
    return false;
}

void bs_remote_query_answered(bs_server *server, bs_session *session, uint32_t shard, const char *line)
{
    bs_remote *remote = session->remote;
    const bool some = strtoull(line + 1, NULL, 10) > 0;
    remote->query = false;
    if (line[0] == '+') {
        remote->tube_exists = some ? BS_TUBE_EXISTS : BS_TUBE_NEW;
        return;
    }
    if (some)
        remote->holds_remote_job = true;
    else
        bs_shard_set_remove(&remote->holding_shards, shard);
    bs_timeouts_schedule(server, session);
}

bs_routing bs_remote_route(bs_server *server, bs_session *session, const bs_command *command, const char *line,
                           size_t length)
{
    int to = destination(server, session, command);
    if (command->verb == BS_VERB_WITH) /* the reply follows the outstanding ones, like an echo */
        return !bs_remote_awaits_replies(session) || may_send(server, session, session->remote->outstanding_shard)
                   ? BS_ROUTE_LOCAL
                   : BS_ROUTE_STALLED;
    if (to == (int)server->queue.shard || to == BS_OWNER_UNKNOWN || command->malformed) {
        if (!bs_remote_may_reply(session))
            return BS_ROUTE_STALLED;
    } else {
        if (!may_send(server, session, (uint32_t)to))
            return BS_ROUTE_STALLED;
        if (server->peers[to] == BS_PEER_DOWN && command->verb != BS_VERB_PUT) {
            bs_reply(server, session, "INTERNAL_ERROR\r\n", BS_HOLD_NONE);
            return BS_ROUTE_SENT;
        }
        if (command->verb == BS_VERB_PUT)
            return BS_ROUTE_LOCAL; /* after its body: bs_remote_put */
        send_line(server, session, command, (uint32_t)to, line, length);
        return BS_ROUTE_SENT;
    }
    switch (command->verb) {
    case BS_VERB_RESERVE: /* which may become a multi-shard reserve */
    case BS_VERB_RESERVE_WITH_TIMEOUT:
    case BS_VERB_RESERVE_BATCH:
    case BS_VERB_WAIT:
        return BS_ROUTE_LOCAL;
    case BS_VERB_USE:
    case BS_VERB_WATCH:
        return tube_is_known(server, session, command) ? BS_ROUTE_LOCAL : BS_ROUTE_STALLED;
    case BS_VERB_LIST_TUBES:
        if (bs_barrier_command(server, session, command))
            return BS_ROUTE_STALLED;
        (void)bs_upcalls_add(&server->upcalls, BS_UPCALL_LIST_TUBES, 0, session->id);
        return park(session);
    case BS_VERB_IGNORE:
    case BS_VERB_LIST_TUBE_USED:
    case BS_VERB_LIST_TUBES_WATCHED:
    case BS_VERB_PAUSE_TUBE:
    case BS_VERB_QUIT:
    case BS_VERB_RESERVE_ABORT:
        return BS_ROUTE_LOCAL;
    default:
        break;
    }
    if (to != BS_OWNER_UNKNOWN) {
        if (session->remote)
            session->remote->remote_run = 0;
        return BS_ROUTE_LOCAL;
    }
    if (!bs_remote_of(server, session)) /* so that its end becomes an upcall */
        return BS_ROUTE_SENT;
    session->finding_job = true;
    bs_queued_upcall *queued = bs_upcalls_add(&server->upcalls, BS_UPCALL_FIND_JOB, 0, session->id);
    if (bs_bytes_append(&queued->bytes, line, length) != 0 || bs_bytes_append(&queued->bytes, "\r\n", 2) != 0)
        bs_session_break(server, session);
    return park(session);
}

int bs_remote_put(bs_server *server, bs_session *session, bs_job *job)
{
    char head[2 * BS_PROXY_LINE_MAX];
    uint32_t shard = job->tube->shard;
    if (server->peers[shard] == BS_PEER_DOWN) {
        server->queue.counters->refused_puts[BS_REFUSED_WORKER_DOWN]++;
        bs_remote_reply_in_order(server, session, "INTERNAL_ERROR\r\n");
    } else {
        const bs_put_options *options = session->put_options;
        const char kind = options && options->moved ? BS_PROXY_MOVED : BS_PROXY_WITH;
        int length = options ? snprintf(head, sizeof head, "%c%.*s\r\n", kind, options->length, options->text) : 0;
        length += snprintf(head + length, sizeof head - (size_t)length,
                           "%c%s %" PRIu64 " put %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 "\r\n", BS_PROXY_TUBE,
                           job->tube->name, job->id, job->pri, job->delay, job->ttr, job->body_size - 2);
        int error = request(server, session, shard, head, (size_t)length, bs_job_body(job), job->body_size);
        if (error)
            return error;
    }
    bs_queue_drop_job(&server->queue, job);
    return 0;
}

/* Makes the proxy at `shard` reply `text`, which ends with CR LF. */
static bool send_echo(bs_server *server, bs_session *session, uint32_t shard, const char *text)
{
    const char head = BS_PROXY_ECHO;
    bool sent = request(server, session, shard, &head, 1, text, strlen(text)) == 0;
    if (!sent)
        bs_session_break(server, session);
    return sent;
}

void bs_remote_reply_in_order(bs_server *server, bs_session *session, const char *text)
{
    if (bs_remote_awaits_replies(session))
        (void)send_echo(server, session, session->remote->outstanding_shard, text);
    else
        bs_reply(server, session, text, BS_HOLD_NONE);
}

void bs_remote_reply_after_count(bs_server *server, bs_session *session, const bs_tube *tube, const char *text)
{
    if (!tube->remote || tube->counts_sent || server->peers[tube->shard] == BS_PEER_DOWN)
        bs_reply(server, session, text, BS_HOLD_NONE);
    else if (send_echo(server, session, tube->shard, text))
        session->remote->echo_first = snprintf(session->remote->echo, sizeof session->remote->echo, "%s", text) > 0;
}

/* --- watches ---------------------------------------------------------------------------------------------- */

static void send_watch(bs_server *server, bs_session *session, const bs_tube *tube, bool watched)
{
    char text[BS_PROXY_LINE_MAX];
    int length = snprintf(text, sizeof text, "%c%c%s\r\n", BS_PROXY_WATCH, watched ? '+' : '-', tube->name);
    if (feed(server, session, tube->shard, NULL, 0, text, (size_t)length) != 0)
        bs_session_break(server, session);
}

void bs_remote_watch(bs_server *server, bs_session *session, const bs_tube *tube, bool watched)
{
    if (session->remote && bs_shard_set_has(&session->remote->watching_shards, tube->shard))
        send_watch(server, session, tube, watched);
}

void bs_remote_send_watches(bs_server *server, bs_session *session, uint32_t shard)
{
    bs_remote *remote = bs_remote_of(server, session);
    if (!remote || bs_shard_set_has(&remote->watching_shards, shard) || server->peers[shard] == BS_PEER_DOWN)
        return;
    bs_shard_set_add(&remote->watching_shards, shard);
    for (uint32_t i = 0; i < session->watch_count; i++) {
        const bs_tube *tube = session->watches[i].tube;
        if (tube->remote && tube->shard == shard)
            send_watch(server, session, tube, true);
    }
}

void bs_remote_end(bs_server *server, const bs_session *session)
{
    for (uint32_t shard = 0; session->remote && shard < server->queue.workers; shard++)
        if (bs_shard_set_has(&session->remote->contacted_shards, shard))
            bs_outbox_must_add(&server->outboxes[shard], BS_FRAME_CLOSE, session->id, NULL, 0);
}

void bs_remote_forget_outstanding(bs_server *server, const bs_session *session, uint32_t shard)
{
    session->remote->outstanding = 0;
    session->remote->outstanding_bytes = 0;
    session->remote->head_length = 0;
    bs_outbox_must_add(&server->outboxes[shard], BS_FRAME_CLOSE, session->id, NULL, 0);
}

/* --- peers ------------------------------------------------------------------------------------------------ */

/* Fails the outstanding replies of a worker that is down. */
static void fail_outstanding(bs_server *server, bs_session *session)
{
    bs_remote *remote = session->remote;
    uint32_t lost = remote->outstanding;
    remote->outstanding = 0;
    remote->outstanding_bytes = 0;
    if (session->mover) {
        remote->head_length = 0;
        return; /* bs_remote_moves_fail */
    }
    if (remote->body_left > 0 || remote->batch_left > 0) {
        bs_session_break(server, session); /* half of a reply has left */
        return;
    }
    remote->head_length = 0;
    if (remote->query) {
        remote->query = false; /* the tube is unknown, and no job is held there any more */
        bs_timeouts_schedule(server, session);
        bs_remote_replied(server, session);
        lost--;
    }
    if (session->parked)
        return; /* a reserve, which goes on (bs_reserves_peer_changed) */
    if (remote->echo_first)
        bs_reply(server, session, remote->echo, BS_HOLD_NONE);
    for (uint32_t i = remote->echo_first; i < lost; i++)
        bs_reply(server, session, "INTERNAL_ERROR\r\n", BS_HOLD_NONE);
    for (uint32_t i = 0; i < lost; i++)
        bs_remote_replied(server, session);
    remote->echo_first = false;
}

static void peer_down(bs_server *server, bs_session *session, uint32_t shard)
{
    bs_remote *remote = session->remote;
    if (!remote || (session->proxy && !session->mover))
        return;
    bs_shard_set_remove(&remote->watching_shards, shard);
    bs_shard_set_remove(&remote->contacted_shards, shard);
    bs_shard_set_remove(&remote->holding_shards, shard);
    if (remote->outstanding > 0 && remote->outstanding_shard == shard)
        fail_outstanding(server, session);
}

void bs_remote_set_peer_state(bs_server *server, uint32_t shard, int state)
{
    int before = server->peers[shard];
    server->peers[shard] = (uint8_t)state;
    if (state == BS_PEER_BUSY)
        return;
    if (state == BS_PEER_UP && before == BS_PEER_DOWN) {
        bs_refs_resend_all(&server->queue, shard);
        bs_barrier_up(server, shard);
    }
    const bs_sessions *sessions = &server->queue.sessions;
    for (uint32_t i = 0; i < sessions->count; i++) {
        bs_session *session = sessions->slots[i];
        if (!session)
            continue;
        if (state == BS_PEER_DOWN)
            peer_down(server, session, shard);
        if (session->proxy && session->peer == shard && session->may_leave > 0)
            bs_session_list_add(&server->dirty, session);
        if (session->stalled && !bs_remote_awaits_replies(session)) {
            session->stalled = false;
            bs_session_list_add(&server->runnable, session);
        }
    }
}
