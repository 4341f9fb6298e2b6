#include "workers/reserve_requests.h"

#include <errno.h>
#include <string.h>

#include "jobs/job.h"
#include "queue/published_heads.h"
#include "queue/queue.h"
#include "server/replies.h"
#include "server/reserves.h"
#include "workers/claims.h"
#include "workers/remote_commands.h"

enum { BATCH_SHIFT = 32 }; /* of the size of a batch in the argument of a request */

struct bs_reserve_call {
    bs_server *server;
    bs_session *session;
    bs_now now;
};

/* --- this shard ------------------------------------------------------------------------------------------- */

static void defer(bs_session *session, uint32_t kind, uint64_t token, uint64_t argument)
{
    session->remote->deferred = kind;
    session->remote->deferred_step = (bs_reserve_step){token, argument};
}

/* False: the request is deferred. */
static bool find_head(bs_server *server, bs_session *session, uint64_t token, bool decided, bs_head *head, bs_now now)
{
    if (!decided && bs_claims_undecided(server, session)) {
        defer(session, BS_FRAME_HEAD, token, 0);
        return false;
    }
    const bs_job *best = bs_queue_best_job(session);
    *head = (bs_head){
        .id = best ? best->id : 0,
        .pri = best ? best->pri : 0,
        .holds = session->reserved.count,
        .soon = bs_queue_deadline_soon(session, now),
    };
    return true;
}

typedef enum { CLAIM_DONE, CLAIM_LOST, CLAIM_DEFERRED } claim_result;

/* Reserves the best job if its priority is `pri` or better, and replies. */
static claim_result claim(bs_server *server, bs_session *session, const bs_reserve_step *step, bool decided, bs_now now)
{
    if (!decided && bs_claims_undecided(server, session)) {
        defer(session, BS_FRAME_CLAIM, step->token, step->argument);
        return CLAIM_DEFERRED;
    }
    const bs_job *best = bs_queue_best_loaded(&server->queue, session, now);
    const uint32_t worst = (uint32_t)step->argument;
    if (!best || best->pri > worst)
        return CLAIM_LOST;
    bs_reply_reserved(server, session, bs_queue_reserve(&server->queue, session, now), worst, now);
    if (!session->proxy)
        bs_latency_replied(&server->latency, session, session->verb, session->since);
    return CLAIM_DONE;
}

/* --- requests to this shard and to others (multi_shard_reserve.h) ------------------------------------------ */

static bool is_here(const bs_reserve_call *call, uint32_t shard)
{
    return shard == call->server->queue.shard;
}

static void send(const bs_reserve_call *call, uint32_t shard, uint32_t kind, uint64_t token, uint64_t argument)
{
    bs_remote_send_watches(call->server, call->session, shard);
    bs_remote_send_step(call->server, call->session, shard, kind, (bs_reserve_step){token, argument});
}

/* With the size of a batch, for requests that may reserve. */
static void send_reserve(const bs_reserve_call *call, uint32_t shard, uint32_t kind, uint64_t token, uint32_t argument)
{
    send(call, shard, kind, token, (uint64_t)call->session->batch << BATCH_SHIFT | argument);
}

/* Sets the time limit of the request (bs_reserves_tick). The list is in the order of the requests. */
static void expect_response(const bs_reserve_call *call)
{
    call->session->remote->reserve.requested_at = call->now.mono;
    bs_session_list_remove(&call->server->asking, call->session);
    bs_session_list_add(&call->server->asking, call->session);
}

/* The output has the reply. */
static void resume(const bs_reserve_call *call)
{
    call->session->parked = false;
    bs_session_list_add(&call->server->runnable, call->session);
}

static void replied_here(bs_reserve_call *call)
{
    bs_reserve_on_done(&call->session->remote->reserve);
    resume(call);
}

int64_t bs_reserve_now(const bs_reserve_call *call)
{
    return call->now.mono;
}

bool bs_reserve_shard_is_up(const bs_reserve_call *call, uint32_t shard)
{
    return is_here(call, shard) || call->server->peers[shard] != BS_PEER_DOWN;
}

/* The best published head of the watched tubes of that shard; false if one of them is not known. */
static bool read_heads(const bs_queue *queue, const bs_session *session, uint32_t shard, bs_head *head)
{
    *head = (bs_head){0};
    for (uint32_t i = 0; i < session->watch_count; i++) {
        const bs_tube *tube = session->watches[i].tube;
        bs_published_head of_tube;
        if (!tube->remote || tube->shard != shard)
            continue;
        if (!bs_head_read(queue, tube, &of_tube))
            return false;
        if (of_tube.id && (!head->id || of_tube.pri < head->pri || (of_tube.pri == head->pri && of_tube.id < head->id)))
            *head = (bs_head){.id = of_tube.id, .pri = of_tube.pri};
    }
    return true;
}

bool bs_reserve_request_head(bs_reserve_call *call, uint32_t shard, uint64_t token, bool exact, bs_head *head)
{
    bs_server *server = call->server;
    bs_session *session = call->session;
    if (is_here(call, shard)) {
        if (find_head(server, session, token, false, head, call->now))
            return true;
    } else {
        const bool may_hold = bs_shard_set_has(&session->remote->holding_shards, shard);
        const bool published = !(exact && may_hold) && !server->queue.unresponsive[shard];
        if (published && read_heads(&server->queue, session, shard, head))
            return true;
        send(call, shard, BS_FRAME_HEAD, token, 0);
    }
    expect_response(call);
    return false;
}

static void claim_here(bs_reserve_call *call, const bs_reserve_step *step, bool decided)
{
    switch (claim(call->server, call->session, step, decided, call->now)) {
    case CLAIM_DONE:
        replied_here(call);
        break;
    case CLAIM_LOST:
        bs_reserve_on_lost(&call->session->remote->reserve, call, step->token);
        break;
    case CLAIM_DEFERRED:
        break;
    }
}

void bs_reserve_request_claim(bs_reserve_call *call, uint32_t shard, uint64_t token, uint32_t pri)
{
    if (is_here(call, shard)) {
        claim_here(call, &(bs_reserve_step){token, pri}, false);
        return;
    }
    bs_remote_expect(call->session, shard);
    send_reserve(call, shard, BS_FRAME_CLAIM, token, pri);
    expect_response(call);
}

void bs_reserve_request_wait(bs_reserve_call *call, uint32_t shard, uint64_t token, int64_t until)
{
    if (!is_here(call, shard)) {
        send(call, shard, BS_FRAME_WAIT, token, 0);
        return;
    }
    bs_claim_wait(call->server, call->session, token, until, call->now);
    bs_session *session = call->session;
    if (session->waiting && (session->readable || bs_bytes_length(&session->in) > 0))
        bs_session_list_add(&call->server->runnable, session); /* a reserve-abort may have arrived meanwhile */
}

void bs_reserve_request_take(bs_reserve_call *call, uint32_t shard, uint64_t token)
{
    if (!is_here(call, shard)) {
        bs_remote_expect(call->session, shard);
        send_reserve(call, shard, BS_FRAME_TAKE, token, 0);
    } else if (bs_claim_take(call->server, call->session, token, call->now)) {
        replied_here(call);
    } else {
        bs_reserve_on_lost(&call->session->remote->reserve, call, token);
    }
}

void bs_reserve_request_cancel(bs_reserve_call *call, uint32_t shard, uint64_t token, bool confirm)
{
    if (is_here(call, shard))
        (void)bs_claim_cancel(call->server, call->session, token, call->now);
    else
        send(call, shard, BS_FRAME_CANCEL, token, confirm);
}

void bs_reserve_request_whole(bs_reserve_call *call, uint32_t shard, uint64_t token, bool poll)
{
    bs_remote_expect(call->session, shard);
    send_reserve(call, shard, BS_FRAME_RESERVE, token, poll);
}

void bs_reserve_reply(bs_reserve_call *call, const char *reply)
{
    bs_server *server = call->server;
    bs_session *session = call->session;
    bs_reply(server, session, reply, bs_binlog_hold(server->queue.binlog));
    bs_latency_replied(&server->latency, session, session->verb, session->since);
    resume(call);
}

void bs_reserve_withdraw(bs_reserve_call *call)
{
    call->session->remote->outstanding = 0;
}

/* --- requests of other workers, and their responses -------------------------------------------------------- */

static void head_for_other(bs_server *server, bs_session *proxy, uint64_t token, bool decided, bs_now now)
{
    bs_head_is response = {.token = token};
    if (find_head(server, proxy, token, decided, &response.head, now))
        bs_outbox_must_add(&server->outboxes[proxy->peer], BS_FRAME_HEAD_IS, proxy->home, &response, sizeof response);
}

/* A session that will wait gets a job that is put back in its turn, so only one that will not wait is deferred. */
static void reserve_for_other(bs_server *server, bs_session *proxy, const bs_reserve_step *step, bool decided,
                              bs_now now)
{
    const bool poll = (uint32_t)step->argument != 0;
    if (!decided && (poll || bs_queue_any_ready(proxy)) && bs_claims_undecided(server, proxy))
        defer(proxy, BS_FRAME_RESERVE, step->token, step->argument);
    else
        bs_execute_reserve(server, proxy, poll ? now.mono : INT64_MAX, BS_WORST_PRIORITY, now);
}

static void cancel_for_other(bs_server *server, bs_session *proxy, const bs_reserve_step *step, bs_now now)
{
    const bool deferred = proxy->remote->deferred != 0;
    proxy->remote->deferred = 0;
    proxy->remote->wait.active = false;
    const bool stopped = bs_claim_cancel(server, proxy, step->token, now) || deferred;
    if (step->argument)
        bs_remote_respond_step(server, proxy, BS_FRAME_CANCELLED, (bs_reserve_step){step->token, stopped});
}

static void execute_for_other(bs_server *server, bs_session *proxy, uint32_t kind, const bs_reserve_step *step,
                              bool decided, bs_now now)
{
    proxy->batch = (uint16_t)(step->argument >> BATCH_SHIFT);
    switch (kind) {
    case BS_FRAME_HEAD:
        head_for_other(server, proxy, step->token, decided, now);
        break;
    case BS_FRAME_CLAIM:
        if (claim(server, proxy, step, decided, now) == CLAIM_LOST)
            bs_remote_respond_step(server, proxy, BS_FRAME_LOST, (bs_reserve_step){step->token, 0});
        break;
    case BS_FRAME_RESERVE:
        reserve_for_other(server, proxy, step, decided, now);
        break;
    case BS_FRAME_WAIT:
        bs_claim_wait(server, proxy, step->token, INT64_MAX, now);
        break;
    case BS_FRAME_TAKE:
        if (!bs_claim_take(server, proxy, step->token, now))
            bs_remote_respond_step(server, proxy, BS_FRAME_LOST, (bs_reserve_step){step->token, 0});
        break;
    default:
        cancel_for_other(server, proxy, step, now);
        break;
    }
}

static void process_response(bs_reserve_call *call, uint32_t kind, uint32_t shard, const bs_reserve_step *step)
{
    bs_reserve *reserve = &call->session->remote->reserve;
    if (kind == BS_FRAME_LOST)
        bs_reserve_on_lost(reserve, call, step->token);
    else if (kind == BS_FRAME_WAITED)
        bs_reserve_on_waited(reserve, call, shard, step->token, (int)step->argument);
    else
        bs_reserve_on_cancelled(reserve, call, step->token, step->argument != 0);
}

int bs_reserve_frame(bs_server *server, bs_session *session, uint32_t shard, const bs_frame *frame, bs_now now)
{
    const uint32_t kind = frame->header.kind;
    const size_t length = kind == BS_FRAME_HEAD_IS ? sizeof(bs_head_is) : sizeof(bs_reserve_step);
    if (frame->header.length != length)
        return -EBADMSG;
    const bool request = kind < BS_FRAME_HEAD_IS;
    if (!session || session->proxy != request || !(request ? bs_remote_of(server, session) : session->remote))
        return 0; /* it has ended */
    bs_reserve_call call = {server, session, now};
    bs_head_is head_is;
    bs_reserve_step step;
    if (kind == BS_FRAME_HEAD_IS) {
        memcpy(&head_is, frame->content, sizeof head_is);
        if (!head_is.head.holds)
            bs_shard_set_remove(&session->remote->holding_shards, shard);
        bs_reserve_on_head(&session->remote->reserve, &call, shard, head_is.token, &head_is.head);
        return 0;
    }
    memcpy(&step, frame->content, sizeof step);
    if (request)
        execute_for_other(server, session, kind, &step, false, now);
    else
        process_response(&call, kind, shard, &step);
    return 0;
}

/* --- events of this worker --------------------------------------------------------------------------------- */

bool bs_reserve_concerns_others(bs_server *server, const bs_session *session, bs_now now)
{
    if (server->queue.workers == 1 || session->proxy)
        return false;
    const bs_job *best = bs_queue_best_loaded(&server->queue, session, now);
    bool others = session->remote && !bs_shard_set_empty(&session->remote->holding_shards);
    for (uint32_t i = 0; i < session->watch_count; i++) {
        const bs_tube *tube = session->watches[i].tube;
        bs_published_head head;
        if (!tube->remote)
            continue;
        others = true;
        if (server->peers[tube->shard] == BS_PEER_DOWN)
            continue;
        if (!best || !bs_head_read(&server->queue, tube, &head))
            return true;
        if (head.id && (head.pri < best->pri || (head.pri == best->pri && head.id < best->id)))
            return true;
    }
    return others && !best;
}

uint32_t bs_reserve_other_priority(const bs_server *server, const bs_session *session)
{
    uint32_t best = BS_WORST_PRIORITY;
    for (uint32_t i = 0; session->batch && !session->proxy && i < session->watch_count; i++) {
        const bs_tube *tube = session->watches[i].tube;
        bs_published_head head;
        if (tube->remote && bs_head_read(&server->queue, tube, &head) && head.id && head.pri < best)
            best = head.pri;
    }
    return best;
}

void bs_reserve_begin(bs_server *server, bs_session *session, int64_t until)
{
    bs_remote *remote = bs_remote_of(server, session);
    if (!remote)
        return;
    bs_queue_count_worker(&server->queue, session);
    bs_shard_set *concerned = &remote->reserve.concerned;
    *concerned = remote->holding_shards;
    for (uint32_t i = 0; i < session->watch_count; i++) {
        const bs_tube *tube = session->watches[i].tube;
        bs_shard_set_add(concerned, tube->remote ? tube->shard : server->queue.shard);
    }
    if (session->reserved.count)
        bs_shard_set_add(concerned, server->queue.shard);
    remote->reserve.until = until;
    remote->reserve_starts = true;
    remote->waited = 0; /* of the reserve before, which has its reply */
    session->parked = true;
    bs_session_list_add(&server->reserving, session);
}

/* Executes a request of this session that waited for pending claims. */
static void execute_deferred(bs_reserve_call *call, uint32_t kind, const bs_reserve_step *step)
{
    bs_head head;
    if (call->session->proxy) {
        execute_for_other(call->server, call->session, kind, step, true, call->now);
    } else if (kind == BS_FRAME_CLAIM) {
        claim_here(call, step, true);
    } else if (find_head(call->server, call->session, step->token, true, &head, call->now)) {
        bs_reserve_on_head(&call->session->remote->reserve, call, call->server->queue.shard, step->token, &head);
    }
}

static void run(bs_server *server, bs_session *session, bs_now now)
{
    bs_reserve_call call = {server, session, now};
    bs_remote *remote = session->remote;
    const bs_reserve_step step = remote->deferred_step;
    const uint32_t deferred = remote->deferred;
    const int waited = remote->waited;
    const bool starts = remote->reserve_starts;
    remote->deferred = remote->waited = remote->reserve_starts = 0;
    if (starts)
        bs_reserve_start(&remote->reserve, &call, server->queue.shard, &remote->reserve.concerned,
                         remote->reserve.until);
    if (deferred)
        execute_deferred(&call, deferred, &step);
    if (waited)
        bs_reserve_on_waited(&remote->reserve, &call, server->queue.shard, remote->token, waited);
}

void bs_reserves_run(bs_server *server, bs_now now)
{
    for (bs_session *session; (session = server->reserving.first);) {
        bs_session_list_remove(&server->reserving, session);
        run(server, session, now);
    }
}

int64_t bs_reserves_next(const bs_server *server)
{
    const bs_session *first = server->asking.first;
    return first ? first->remote->reserve.requested_at + BS_HEADS_LIMIT_NS : INT64_MAX;
}

void bs_reserves_tick(bs_server *server, bs_now now)
{
    while (bs_reserves_next(server) <= now.mono) {
        bs_reserve_call call = {server, server->asking.first, now};
        bs_reserve *reserve = &call.session->remote->reserve;
        bs_session_list_remove(&server->asking, call.session);
        if (reserve->phase == BS_RESERVE_CLAIMING && !is_here(&call, reserve->shard))
            server->queue.unresponsive[reserve->shard] = true; /* later reserves ask it first, with a time limit */
        bs_reserve_on_slow(reserve, &call);
    }
}

void bs_reserves_peer_changed(bs_server *server, uint32_t shard, bs_now now)
{
    const bs_sessions *sessions = &server->queue.sessions;
    for (uint32_t i = 0; i < sessions->count; i++) {
        bs_reserve_call call = {server, sessions->slots[i], now};
        if (!call.session || !call.session->remote || call.session->proxy)
            continue;
        if (server->peers[shard] == BS_PEER_DOWN)
            bs_reserve_on_down(&call.session->remote->reserve, &call, shard);
        else
            bs_reserve_on_up(&call.session->remote->reserve, &call, shard);
    }
}
