#include "workers/shard_waits.h"

#include <string.h>

#include "jobs/job_owners.h"
#include "queue/job_state.h"
#include "queue/job_waits.h"
#include "queue/queue.h"
#include "server/replies.h"
#include "workers/remote_commands.h"

/* --- at home ---------------------------------------------------------------------------------------------- */

static bool is_up(const bs_server *server, uint32_t shard)
{
    return server->peers[shard] != BS_PEER_DOWN;
}

/* Returns the workers that may have the job. */
static bs_shard_set owners(bs_server *server, uint64_t job)
{
    bs_shard_set set = {0};
    const int owner = bs_remote_owner_of(server, job);
    if (owner != BS_OWNER_UNKNOWN)
        bs_shard_set_add(&set, (uint32_t)owner);
    for (uint32_t shard = 0; owner == BS_OWNER_UNKNOWN && shard < server->queue.workers; shard++)
        bs_shard_set_add(&set, shard);
    return set;
}

static bool has_others(const bs_shard_set *set, uint32_t home)
{
    bs_shard_set others = *set;
    bs_shard_set_remove(&others, home);
    return !bs_shard_set_empty(&others);
}

bool bs_shard_wait_concerns_others(bs_server *server, const bs_session *session, uint64_t job)
{
    const uint32_t home = server->queue.shard;
    if (server->queue.workers == 1 || session->proxy)
        return false;
    const bs_shard_set set = owners(server, job);
    return has_others(&set, home) || (session->remote && has_others(&session->remote->holding_shards, home));
}

static void ask(bs_server *server, bs_session *session, uint32_t shard)
{
    bs_shard_wait *wait = &session->remote->wait;
    if (shard == server->queue.shard || !is_up(server, shard))
        return;
    bs_shard_set_add(&wait->asked, shard);
    bs_shard_set_add(&wait->unanswered, shard);
    const uint64_t job = bs_shard_set_has(&wait->owners, shard) ? wait->job : 0;
    bs_remote_send_step(server, session, shard, BS_FRAME_AWAIT, (bs_reserve_step){wait->token, job});
}

/* Ends the waits at other workers. */
static void cancel(bs_server *server, bs_session *session)
{
    bs_shard_wait *wait = &session->remote->wait;
    for (int s = bs_shard_set_next(&wait->asked, 0); s >= 0; s = bs_shard_set_next(&wait->asked, s + 1))
        bs_remote_send_step(server, session, (uint32_t)s, BS_FRAME_CANCEL, (bs_reserve_step){wait->token, 0});
    wait->asked = wait->unanswered = wait->owners = (bs_shard_set){0};
    wait->concluded = true;
}

static void reply(bs_server *server, bs_session *session, bs_served how)
{
    bs_shard_wait *wait = &session->remote->wait;
    const int64_t since = session->waiting ? BS_SINCE_NOW : session->since;
    cancel(server, session);
    if (session->waiting)
        bs_queue_stop_waiting(&server->queue, session);
    wait->active = false;
    if (how == BS_SERVED_DELETED || how == BS_SERVED_BURIED)
        bs_reply_number(server, session, how == BS_SERVED_BURIED ? "BURIED" : "DELETED", wait->job, BS_HOLD_NONE);
    else
        bs_reply(server, session,
                 how == BS_SERVED_NOT_FOUND       ? "NOT_FOUND\r\n"
                 : how == BS_SERVED_TIMED_OUT     ? "TIMED_OUT\r\n"
                 : how == BS_SERVED_DEADLINE_SOON ? "DEADLINE_SOON\r\n"
                                                  : "INTERNAL_ERROR\r\n",
                 bs_binlog_hold(server->queue.binlog));
    if (!session->parked)
        return; /* at the beginning of the wait */
    session->parked = false;
    bs_latency_replied(&server->latency, session, session->verb, since);
    bs_session_list_add(&server->runnable, session);
}

/* The outcome is known. Many sessions may wait for the same job, so those that wait are answered in turn. */
static void conclude(bs_server *server, bs_session *session, bs_served how)
{
    if (!session->waiting) {
        reply(server, session, how);
        return;
    }
    cancel(server, session);
    bs_job_wait_end(&server->queue, session, how, 0);
}

/* Replies if the answers so far suffice. */
static void decide(bs_server *server, bs_session *session)
{
    const bs_shard_wait *wait = &session->remote->wait;
    bool owner_pending = false, owner_down = false;
    for (int s = bs_shard_set_next(&wait->owners, 0); s >= 0; s = bs_shard_set_next(&wait->owners, s + 1)) {
        owner_pending = owner_pending || bs_shard_set_has(&wait->unanswered, (uint32_t)s);
        owner_down = owner_down || (s != (int)server->queue.shard && !is_up(server, (uint32_t)s));
    }
    if (wait->concluded)
        return;
    if (bs_shard_set_empty(&wait->owners))
        conclude(server, session, BS_SERVED_NOT_FOUND);
    else if (wait->soon && !owner_pending)
        reply(server, session, BS_SERVED_DEADLINE_SOON);
    else if (wait->polls && bs_shard_set_empty(&wait->unanswered))
        reply(server, session, owner_down ? BS_SERVED_UNREACHABLE : BS_SERVED_TIMED_OUT);
}

/* Looks for the job here. Returns false if that gives the reply. */
static bool look_here(bs_server *server, bs_session *session, bool *here)
{
    bs_shard_wait *wait = &session->remote->wait;
    const uint32_t home = server->queue.shard;
    const bs_job *job = bs_job_table_find(&server->queue.jobs, wait->job);
    *here = job != NULL;
    if (job && job->state == BS_BURIED) {
        bs_reply_number(server, session, "BURIED", wait->job, bs_binlog_hold_job(server->queue.binlog, job));
        return false;
    }
    if (!job)
        bs_shard_set_remove(&wait->owners, home);
    const int owner = bs_shard_set_next(&wait->owners, 0);
    if (owner < 0) {
        bs_reply(server, session, "NOT_FOUND\r\n", bs_binlog_hold(server->queue.binlog));
        return false;
    }
    if (owner != (int)home && !is_up(server, (uint32_t)owner) && bs_shard_set_next(&wait->owners, owner + 1) < 0) {
        bs_reply(server, session, "INTERNAL_ERROR\r\n", BS_HOLD_NONE);
        return false;
    }
    return true;
}

void bs_shard_wait_begin(bs_server *server, bs_session *session, uint64_t job, int64_t until, bs_now now)
{
    bool here;
    bs_remote *remote = bs_remote_of(server, session);
    if (!remote)
        return;
    bs_shard_wait *wait = &remote->wait;
    *wait = (bs_shard_wait){
        .job = job,
        .token = wait->token + 1,
        .owners = owners(server, job),
        .soon = bs_queue_deadline_soon(session, now),
        .polls = until <= now.mono || session->eof,
    };
    if (!look_here(server, session, &here))
        return;
    if (!wait->polls && bs_queue_wait_for_job(&server->queue, session, job, here, until) != 0) {
        bs_reply(server, session, "OUT_OF_MEMORY\r\n", BS_HOLD_NONE);
        return;
    }
    wait->active = true;
    bs_shard_set others = wait->owners;
    bs_shard_set_add_all(&others, &remote->holding_shards);
    for (int s = bs_shard_set_next(&others, 0); s >= 0; s = bs_shard_set_next(&others, s + 1))
        ask(server, session, (uint32_t)s);
    decide(server, session);
    session->parked = wait->active;
}

static void take_answer(bs_server *server, bs_session *session, uint32_t shard, const bs_reserve_step *step)
{
    bs_shard_wait *wait = &session->remote->wait;
    if (!wait->active || wait->concluded || step->token != wait->token)
        return;
    const uint64_t how = step->argument & BS_WAIT_HOW;
    bs_shard_set_remove(&wait->unanswered, shard);
    wait->soon = wait->soon || step->argument & BS_WAIT_SOON;
    if (how == BS_SERVED_NOT_FOUND) {
        bs_shard_set_remove(&wait->owners, shard);
        if (!bs_shard_set_empty(&wait->owners) && bs_shard_set_has(&session->remote->holding_shards, shard))
            ask(server, session, shard); /* for the jobs that the session holds there */
    }
    if (how == BS_SERVED_DELETED || how == BS_SERVED_BURIED)
        conclude(server, session, (bs_served)how);
    else
        decide(server, session);
}

void bs_shard_waits_peer_changed(bs_server *server, uint32_t shard)
{
    const bs_sessions *sessions = &server->queue.sessions;
    for (uint32_t i = 0; i < sessions->count; i++) {
        bs_session *session = sessions->slots[i];
        if (!session || session->proxy || !session->remote || !session->remote->wait.active)
            continue;
        bs_shard_wait *wait = &session->remote->wait;
        bs_shard_set_remove(&wait->asked, shard);
        bs_shard_set_remove(&wait->unanswered, shard);
        if (bs_shard_set_has(&wait->owners, shard))
            ask(server, session, shard);
        decide(server, session);
    }
}

/* --- at the other workers --------------------------------------------------------------------------------- */

static void respond(bs_server *server, const bs_session *proxy, uint64_t argument)
{
    bs_remote_respond_step(server, proxy, BS_FRAME_AWAITED, (bs_reserve_step){proxy->remote->wait.token, argument});
}

static void await_for_other(bs_server *server, bs_session *proxy, const bs_reserve_step *step, bs_now now)
{
    bs_queue *queue = &server->queue;
    const uint64_t id = step->argument;
    const bs_job *job = id ? bs_job_table_find(&queue->jobs, id) : NULL;
    const bs_served how = !job ? BS_SERVED_NOT_FOUND : BS_SERVED_BURIED;
    const bool over = id && (!job || job->state == BS_BURIED);
    proxy->remote->wait = (bs_shard_wait){.job = id, .token = step->token, .active = true};
    if (bs_queue_wait_for_job(queue, proxy, id, id && !over, INT64_MAX) != 0) {
        bs_session_break(server, proxy);
        return;
    }
    if (over)
        bs_job_wait_end(queue, proxy, how, bs_binlog_generation(queue->binlog));
    else
        respond(server, proxy, BS_WAIT_PENDING | (bs_queue_deadline_soon(proxy, now) ? BS_WAIT_SOON : 0));
}

static void served_for_other(bs_server *server, bs_session *proxy, bs_served how)
{
    if (proxy->waiting)
        bs_queue_stop_waiting(&server->queue, proxy);
    proxy->remote->wait.active = false;
    respond(server, proxy, how == BS_SERVED_DEADLINE_SOON ? BS_WAIT_PENDING | BS_WAIT_SOON : (uint64_t)how);
}

/* --- both ------------------------------------------------------------------------------------------------- */

void bs_shard_wait_served(bs_server *server, bs_session *session, bs_served how, bs_now now)
{
    const bool early = how == BS_SERVED_TIMED_OUT && session->reserve_until > now.mono;
    if (session->proxy) {
        served_for_other(server, session, how);
    } else if (how == BS_SERVED_DEADLINE_SOON) {
        session->remote->wait.soon = true;
        decide(server, session);
    } else if (early && !bs_shard_set_empty(&session->remote->wait.unanswered)) {
        session->remote->wait.polls = true; /* the client waits no longer, and gets what is known */
        session->since = server->latency.round;
    } else {
        reply(server, session, how);
    }
}

int bs_shard_wait_frame(bs_server *server, bs_session *session, uint32_t shard, const bs_frame *frame, bs_now now)
{
    bs_reserve_step step;
    if (frame->header.length != sizeof step)
        return -EBADMSG;
    memcpy(&step, frame->content, sizeof step);
    const bool request = frame->header.kind == BS_FRAME_AWAIT;
    if (!session || session->proxy != request || !(request ? bs_remote_of(server, session) : session->remote))
        return 0; /* it has ended */
    if (request)
        await_for_other(server, session, &step, now);
    else
        take_answer(server, session, shard, &step);
    return 0;
}
