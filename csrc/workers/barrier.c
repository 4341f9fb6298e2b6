#include "workers/barrier.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "queue/tube_refs.h"

enum { ROUNDS = 3 }; /* the first reads SYNC, the second takes the pending events, the third has ended their sessions */

/* --- counts of this worker -------------------------------------------------------------------------------- */

/* A census must follow the counts of tubes. */
static void send_census_to(bs_server *server, uint32_t shard)
{
    const bs_counters *counters = server->queue.counters;
    const bs_census census = {counters->total_connections, counters->producers, counters->workers,
                              server->barriers.moves};
    bs_outbox_must_add(&server->outboxes[shard], BS_FRAME_CENSUS, 0, &census, sizeof census);
}

static void send_new_census(bs_server *server)
{
    bs_barriers *barriers = &server->barriers;
    const bs_queue *queue = &server->queue;
    const uint32_t home = queue->default_tube->shard;
    for (uint32_t shard = 0; shard < queue->workers; shard++) {
        const bool news = barriers->moved || (queue->adopted_new && shard == home);
        if (news && shard != queue->shard && server->peers[shard] != BS_PEER_DOWN)
            send_census_to(server, shard);
    }
    barriers->moved = false;
    server->queue.adopted_new = false;
}

static void send_count(bs_server *server, const bs_tube *tube, bs_peer_refs refs)
{
    char content[sizeof refs + BS_TUBE_NAME_MAX];
    memcpy(content, &refs, sizeof refs);
    memcpy(content + sizeof refs, tube->name, tube->name_length);
    bs_outbox_must_add(&server->outboxes[tube->shard], BS_FRAME_COUNT, tube->number, content,
                       sizeof refs + tube->name_length);
}

void bs_counts_send(bs_server *server)
{
    bs_tube *tube;
    bool unneeded;
    while (bs_refs_take_changed(&server->queue, &tube, &unneeded)) {
        const bs_peer_refs refs = {.users = tube->users, .watchers = tube->watchers, .pins = tube->pins};
        if (server->peers[tube->shard] != BS_PEER_DOWN)
            send_count(server, tube, unneeded ? (bs_peer_refs){0} : refs);
        if (!unneeded)
            bs_refs_counts_sent(&server->queue, tube);
    }
    if (server->queue.adopted_new || server->barriers.moved)
        send_new_census(server);
}

/* --- waiters ---------------------------------------------------------------------------------------------- */

static void add_waiter(bs_barrier *barrier, bs_barrier_waiter waiter)
{
    barrier->waiters = bs_must_grow_u32(barrier->waiters, barrier->count, &barrier->capacity, sizeof *barrier->waiters);
    barrier->waiters[barrier->count++] = waiter;
    barrier->wanted = barrier->wanted || !barrier->runs;
}

static bs_barrier_waiter take_waiter(bs_barrier *barrier, uint32_t index)
{
    const bs_barrier_waiter waiter = barrier->waiters[index];
    barrier->count--;
    memmove(&barrier->waiters[index], &barrier->waiters[index + 1],
            (barrier->count - index) * sizeof *barrier->waiters);
    return waiter;
}

/* Returns whether no connection is on its way, as far as this worker knows. */
static bool balanced(const bs_server *server)
{
    uint64_t sum = server->barriers.moves;
    for (uint32_t shard = 0; shard < server->queue.workers; shard++)
        sum += server->barriers.census[shard].moves;
    return sum == 0;
}

static bool alone(const bs_server *server)
{
    for (uint32_t shard = 0; shard < server->queue.workers; shard++)
        if (shard != server->queue.shard && server->peers[shard] != BS_PEER_DOWN)
            return false;
    return true;
}

bool bs_barrier_command(bs_server *server, bs_session *session, const bs_command *command)
{
    if (server->queue.workers == 1 || command->malformed || alone(server))
        return false;
    const bool global = command->verb == BS_VERB_STATS || command->verb == BS_VERB_LIST_TUBES;
    if (session->barrier_bytes > 0 && (session->barrier_global || !global) &&
        (session->barrier_overdue || balanced(server)))
        return false;
    session->stalled = true;
    session->claims_decided = !global; /* it waits for the pending claims, too (claims.h, D1) */
    if (!session->awaits_barrier)
        add_waiter(&server->barriers.of[global], (bs_barrier_waiter){.session = session->id});
    session->awaits_barrier = true;
    return true;
}

/* --- barriers --------------------------------------------------------------------------------------------- */

/* The answer follows the counts of this worker (S1). */
static void answer(bs_server *server, uint32_t shard, uint64_t token)
{
    if (server->peers[shard] == BS_PEER_DOWN)
        return;
    bs_counts_send(server);
    send_census_to(server, shard);
    bs_outbox_must_add(&server->outboxes[shard], BS_FRAME_SYNCED, token, NULL, 0);
}

static void release(bs_server *server, const bs_barrier *barrier, const bs_barrier_waiter *waiter, bool overdue,
                    bs_now now)
{
    bs_session *session = bs_sessions_find(&server->queue.sessions, waiter->session);
    if (waiter->arrival) {
        if (server->peers[waiter->shard] != BS_PEER_DOWN)
            bs_outbox_must_add(&server->outboxes[waiter->shard], BS_FRAME_ARRIVED, waiter->token, NULL, 0);
    } else if (waiter->token) {
        answer(server, waiter->shard, waiter->token);
    } else if (session) {
        session->awaits_barrier = session->stalled = false;
        session->barrier_bytes = waiter->received;
        session->barrier_global = barrier == &server->barriers.of[BS_BARRIER_GLOBAL];
        session->barrier_overdue = overdue;
        server->resume(server, session, now); /* now, before another worker sends more */
        bs_session_list_add(&server->runnable, session);
    }
}

static void serve(bs_server *server, bs_barrier *barrier, bs_now now)
{
    for (uint32_t i = 0; i < barrier->count;) {
        const bs_barrier_waiter *first = &barrier->waiters[i];
        const bool overdue = first->until <= now.mono;
        if (!first->done || !(first->token || overdue || balanced(server))) {
            i++;
            continue;
        }
        const bs_barrier_waiter waiter = take_waiter(barrier, i);
        release(server, barrier, &waiter, overdue, now);
        i = 0; /* there may be new waiters */
    }
}

static void finish(bs_server *server, bs_barrier *barrier, bs_now now)
{
    barrier->runs = false;
    for (uint32_t i = 0; i < barrier->count; i++) {
        bs_barrier_waiter *waiter = &barrier->waiters[i];
        waiter->done = waiter->done || waiter->begun;
        barrier->wanted = barrier->wanted || !waiter->begun;
    }
    serve(server, barrier, now);
}

static void begin(bs_server *server, bs_barrier *barrier, bs_now now)
{
    const bool global = barrier == &server->barriers.of[BS_BARRIER_GLOBAL];
    barrier->wanted = false;
    barrier->runs = true;
    barrier->number++;
    barrier->until = now.mono + (global ? 2 : 1) * BS_BARRIER_LIMIT_NS; /* a global one waits for local ones */
    for (uint32_t i = 0; i < barrier->count; i++) {
        bs_barrier_waiter *waiter = &barrier->waiters[i];
        if (waiter->begun)
            continue;
        const bs_session *session = bs_sessions_find(&server->queue.sessions, waiter->session);
        waiter->begun = true;
        waiter->received = session ? bs_bytes_length(&session->in) : 0;
        waiter->until = barrier->until;
    }
    barrier->missing = 0;
    bs_counts_send(server);
    for (uint32_t shard = 0; shard < server->queue.workers; shard++) {
        barrier->asked[shard] = shard != server->queue.shard && server->peers[shard] != BS_PEER_DOWN &&
                                !server->barriers.late[shard];
        if (!barrier->asked[shard])
            continue;
        barrier->missing++;
        const uint64_t token = barrier->number * BS_BARRIER_KINDS + global;
        bs_outbox_must_add(&server->outboxes[shard], BS_FRAME_SYNC, token, NULL, 0);
    }
    if (barrier->missing == 0)
        finish(server, barrier, now);
}

static void has_answered(bs_server *server, bs_barrier *barrier, uint32_t shard, bs_now now)
{
    if (!barrier->runs || !barrier->asked[shard])
        return;
    barrier->asked[shard] = false;
    if (--barrier->missing == 0)
        finish(server, barrier, now);
}

static void tick(bs_server *server, bs_barrier *barrier, bs_now now)
{
    if (barrier->runs && barrier->until <= now.mono) {
        for (uint32_t shard = 0; shard < server->queue.workers; shard++)
            server->barriers.late[shard] = server->barriers.late[shard] || barrier->asked[shard];
        finish(server, barrier, now);
    } else if (barrier->count > 0) {
        serve(server, barrier, now);
    }
}

void bs_barrier_tick(bs_server *server, bs_now now)
{
    for (int kind = 0; kind < BS_BARRIER_KINDS; kind++)
        tick(server, &server->barriers.of[kind], now);
}

int64_t bs_barrier_next(const bs_server *server)
{
    int64_t next = INT64_MAX;
    for (int kind = 0; kind < BS_BARRIER_KINDS; kind++) {
        const bs_barrier *barrier = &server->barriers.of[kind];
        if (barrier->runs && barrier->until < next)
            next = barrier->until;
        for (uint32_t i = 0; i < barrier->count; i++)
            if (barrier->waiters[i].begun && barrier->waiters[i].until < next)
                next = barrier->waiters[i].until;
    }
    return next;
}

/* --- other workers ---------------------------------------------------------------------------------------- */

static void drop_request(bs_server *server, bs_barrier_request *request)
{
    server->barriers.open_requests -= request->token != 0;
    *request = (bs_barrier_request){0};
}

void bs_barrier_requested(bs_server *server, uint32_t shard, uint64_t token)
{
    bs_barrier_request *request = &server->barriers.requests[shard][token % BS_BARRIER_KINDS];
    drop_request(server, request); /* the new request replaces it */
    *request = (bs_barrier_request){.token = token};
    server->barriers.open_requests++;
}

/* epoll reports descriptors in the order in which they became ready, so as many events as there are descriptors include
 * all that were pending. */
static void count_round(bs_server *server, uint32_t shard, bs_barrier_request *request, uint32_t events, bool all)
{
    const uint64_t token = request->token;
    if (!token)
        return;
    request->events += events;
    if (all || request->events >= server->queue.sessions.count + server->queue.workers) {
        request->rounds++;
        request->events = 0;
    }
    if (request->rounds < ROUNDS)
        return;
    drop_request(server, request);
    if (token % BS_BARRIER_KINDS == BS_BARRIER_GLOBAL)
        add_waiter(&server->barriers.of[BS_BARRIER_LOCAL], (bs_barrier_waiter){.shard = shard, .token = token});
    else
        answer(server, shard, token);
}

void bs_barrier_round(bs_server *server, uint32_t events, bool all, bs_now now)
{
    bs_barriers *barriers = &server->barriers;
    for (uint32_t shard = 0; barriers->open_requests > 0 && shard < server->queue.workers; shard++)
        for (int kind = 0; kind < BS_BARRIER_KINDS; kind++)
            count_round(server, shard, &barriers->requests[shard][kind], events, all);
    for (int kind = 0; kind < BS_BARRIER_KINDS; kind++)
        if (barriers->of[kind].wanted && !barriers->of[kind].runs)
            begin(server, &barriers->of[kind], now);
}

void bs_barrier_answered(bs_server *server, uint32_t shard, uint64_t token, bs_now now)
{
    bs_barrier *barrier = &server->barriers.of[token % BS_BARRIER_KINDS];
    if (barrier->number == token / BS_BARRIER_KINDS)
        has_answered(server, barrier, shard, now);
}

void bs_barrier_census(bs_server *server, uint32_t shard, const bs_census *census, bs_now now)
{
    server->barriers.census[shard] = *census;
    server->queue.adopted[shard] = census->adopted;
    for (int kind = 0; kind < BS_BARRIER_KINDS; kind++)
        serve(server, &server->barriers.of[kind], now);
}

void bs_barrier_up(bs_server *server, uint32_t shard)
{
    server->barriers.late[shard] = false;
    send_census_to(server, shard);
}

/* --- migrations ------------------------------------------------------------------------------------------- */

/* The weight of a migration: the sender adds it, and the receiver subtracts it. */
static uint64_t weight(uint64_t from, uint64_t to)
{
    uint64_t mixed = (from << 32 | to) + UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return (mixed ^ mixed >> 31) | 1;
}

static void pin_tube(bs_server *server, bs_tube *tube, uint32_t shard)
{
    bs_barriers *barriers = &server->barriers;
    barriers->pinned =
        bs_must_grow_u32(barriers->pinned, barriers->pinned_count, &barriers->pinned_capacity, sizeof(bs_pinned_tube));
    barriers->pinned[barriers->pinned_count++] = (bs_pinned_tube){tube, barriers->moved_out[shard], shard};
    bs_refs_pin(&server->queue, tube);
}

void bs_barrier_migrated_out(bs_server *server, const bs_session *session, uint32_t shard)
{
    bs_barriers *barriers = &server->barriers;
    barriers->moved_out[shard]++;
    barriers->moves += weight(server->queue.shard, shard);
    barriers->moved = true;
    pin_tube(server, session->use, shard);
    for (uint32_t i = 0; i < session->watch_count; i++)
        pin_tube(server, session->watches[i].tube, shard);
}

void bs_barrier_migrated_in(bs_server *server, uint32_t shard)
{
    bs_barriers *barriers = &server->barriers;
    barriers->moved_in[shard]++;
    barriers->moves -= weight(shard, server->queue.shard);
    barriers->moved = true;
    add_waiter(&barriers->of[BS_BARRIER_LOCAL],
               (bs_barrier_waiter){.shard = shard, .token = barriers->moved_in[shard], .arrival = true});
}

void bs_barrier_arrival_confirmed(bs_server *server, uint32_t shard, uint64_t number)
{
    bs_barriers *barriers = &server->barriers;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < barriers->pinned_count; i++) {
        const bs_pinned_tube pinned = barriers->pinned[i];
        if (pinned.shard == shard && pinned.number <= number)
            bs_refs_unpin(&server->queue, pinned.tube);
        else
            barriers->pinned[kept++] = pinned;
    }
    barriers->pinned_count = kept;
}

void bs_barrier_down(bs_server *server, uint32_t shard, bs_now now)
{
    bs_barriers *barriers = &server->barriers;
    bs_queue *queue = &server->queue;
    bs_barrier_arrival_confirmed(server, shard, UINT64_MAX);
    barriers->moves -= barriers->moved_out[shard] * weight(queue->shard, shard);
    barriers->moves += barriers->moved_in[shard] * weight(shard, queue->shard);
    barriers->moved = barriers->moved || barriers->moved_out[shard] || barriers->moved_in[shard];
    barriers->moved_out[shard] = barriers->moved_in[shard] = 0;
    barriers->census[shard] = (bs_census){0};
    queue->adopted[shard] = BS_ADOPTED_UNKNOWN;
    bs_barrier *local = &barriers->of[BS_BARRIER_LOCAL];
    for (uint32_t i = 0; i < local->count;) {
        if (local->waiters[i].token && local->waiters[i].shard == shard)
            (void)take_waiter(local, i);
        else
            i++;
    }
    for (int kind = 0; kind < BS_BARRIER_KINDS; kind++) {
        drop_request(server, &barriers->requests[shard][kind]);
        has_answered(server, &barriers->of[kind], shard, now);
    }
    bs_barrier_tick(server, now);
}

void bs_barrier_count_roles(bs_server *server)
{
    bs_barriers *barriers = &server->barriers;
    barriers->producers = server->queue.counters->producers;
    barriers->workers = server->queue.counters->workers;
    for (uint32_t shard = 0; shard < server->queue.workers; shard++) {
        barriers->producers += barriers->census[shard].producers;
        barriers->workers += barriers->census[shard].workers;
    }
}

void bs_barriers_free(bs_barriers *barriers)
{
    for (int kind = 0; kind < BS_BARRIER_KINDS; kind++)
        free(barriers->of[kind].waiters);
    free(barriers->pinned);
    *barriers = (bs_barriers){0};
}
