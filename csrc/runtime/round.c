#include "runtime/round.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "commands/command_stream.h"
#include "commands/long_commands.h"
#include "queue/job_waits.h"
#include "queue/queue.h"
#include "runtime/connection.h"
#include "runtime/overdue_log.h"
#include "runtime/worker_links.h"
#include "server/slow_log.h"
#include "workers/barrier.h"
#include "workers/claims.h"
#include "workers/remote_moves.h"
#include "workers/reserve_requests.h"

enum {
    EVENTS_PER_ROUND = 256,
    MESSAGES_PER_ROUND = 8,
    ANSWERS_PER_ROUND = 128 /* to sessions that wait for a job, so that other clients wait for a few only */
};

/* --- a round ---------------------------------------------------------------------------------------------- */

static void take_event(bs_core *core, const struct epoll_event *event, bs_now now)
{
    uint64_t tag = event->data.u64;
    if (tag == (uint64_t)core->wake_fd || (core->replica.shared && tag == (uint64_t)core->replica.stored_fd))
        return; /* every round looks for finished work of the threads and of the replicator */
    if (tag == (uint64_t)core->timer_fd) {
        core->timer_at = INT64_MAX;
        return;
    }
    if (core->channel_fd >= 0 && tag == (uint64_t)core->channel_fd) {
        for (int i = 0; i < MESSAGES_PER_ROUND && core->channel_fd >= 0 && bs_core_receive_descriptors(core); i++)
            continue;
        return;
    }
    if (core->watched_fd >= 0 && tag == (uint64_t)core->watched_fd) {
        core->watched_readable = true;
        return;
    }
    if (tag <= UINT32_MAX) {
        const uint32_t shard = (uint32_t)(tag - BS_PEER_TAG);
        if (tag < BS_PEER_TAG || !(event->events & ~(uint32_t)EPOLLOUT))
            return; /* the end of the round sends the outbox */
        core->peers[shard].hung_up = core->peers[shard].hung_up || event->events & (EPOLLHUP | EPOLLERR);
        bs_link_ready(core, shard, now);
        return;
    }
    bs_session *session = bs_sessions_find(&core->server.queue.sessions, tag);
    if (!session)
        return; /* closed earlier in this round */
    if (event->events & EPOLLOUT)
        bs_session_list_add(&core->server.dirty, session);
    if (!(event->events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
        return;
    session->readable = true;
    if ((event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) && !session->eof)
        bs_stream_finish(&core->server, session, false, now);
    bs_connection_run(core, session, now);
    if (session->closing && bs_bytes_length(&session->out) == 0)
        bs_core_end_session(core, session, now); /* later commands of this round must find it gone */
}

static void run_list(bs_core *core, bs_session_list *list, void (*run)(bs_core *, bs_session *, bs_now), bs_now now)
{
    for (bs_session *session; (session = list->first);) {
        bs_session_list_remove(list, session);
        run(core, session, now);
    }
}

/* The sessions that had more input at the end of the last round. */
static void run_more_input(bs_core *core, bs_now now)
{
    bs_session *last = core->server.more_input.last;
    for (bs_session *session; (session = core->server.more_input.first);) {
        bs_session_list_remove(&core->server.more_input, session);
        bs_connection_run(core, session, now);
        if (session == last)
            break;
    }
}

static bool has_work(const bs_core *core)
{
    return core->server.runnable.first || core->server.more_input.first || core->server.reserving.first ||
           core->server.first_long_command || bs_moves_due(&core->server) || bs_job_waits_due(&core->server.queue) ||
           bs_barrier_busy(&core->server) || bs_links_have_messages(core);
}

/* A single client gains nothing from a sync on another thread, which costs two wake-ups. */
static bool has_one_active_client(const bs_core *core)
{
    const bs_session_list *held = &core->server.held;
    if (core->many_held || held->first != held->last || has_work(core))
        return false;
    if (core->server.queue.counters->connections == 1)
        return true;
    /* poll, because epoll_wait would consume an edge. */
    struct pollfd more = {.fd = core->epoll_fd, .events = POLLIN};
    return held->first && poll(&more, 1, 0) == 0;
}

static void flush(bs_core *core, bs_session *session, bs_now now)
{
    if (session->proxy)
        bs_proxy_flush(core, session, now);
    else
        bs_connection_send(core, session, now);
}

static void send_replies(bs_core *core, bs_now now)
{
    if (core->server.tracing.slow_ns > 0)
        core->server.tracing.clock = bs_clock_mono(); /* a write or a sync may have taken time since `now` */
    for (bs_session *session = core->server.dirty.first, *next; session; session = next) {
        next = session->links[BS_LIST_DIRTY].next;
        if (!session->proxy)
            continue;
        bs_session_list_remove(&core->server.dirty, session);
        bs_proxy_flush(core, session, now);
    }
    bs_links_send(core);
    run_list(core, &core->server.dirty, flush, now);
}

static void set_fatal(bs_core *core)
{
    if (core->fatal)
        return;
    core->fatal = true;
    (void)snprintf(core->error, sizeof core->error,
                   "binlog %s failed: %s; stopping, because nothing can be acknowledged any more",
                   core->binlog->failed_call, strerror(-core->binlog->failed));
}

/* Returns whether replies may leave (P3). */
static bool holds_lease(bs_core *core)
{
    if (!bs_lease_ended(core->server.queue.shared))
        return true;
    core->fatal = true;
    (void)snprintf(core->error, sizeof core->error,
                   "the lease of this server has ended; stopping, because another server may serve its jobs");
    return false;
}

static void mark_started(bs_core *core)
{
    for (bs_session *session = core->server.held.first; session; session = session->links[BS_LIST_HELD].next) {
        session->after_sync = bs_bytes_length(&session->out);
        if (session->trace)
            bs_slow_sync_started(&session->trace->slow);
    }
    bs_latency_sync_started(&core->server.latency);
}

static void release_replies(bs_core *core)
{
    bs_session_list *held = &core->server.held;
    bs_latency_sync_ended(&core->server.latency);
    core->many_held = held->first != held->last;
    for (bs_session *session = held->first, *next; session; session = next) {
        next = session->links[BS_LIST_HELD].next;
        session->may_leave = session->after_sync;
        if (session->trace)
            bs_slow_sync_ended(&session->trace->slow);
        if (session->may_leave > 0)
            bs_session_list_add(&core->server.dirty, session);
        if (session->may_leave == bs_bytes_length(&session->out))
            bs_session_list_remove(held, session);
    }
}

int bs_round_commit(bs_core *core, bs_now now, bool here)
{
    if (core->fatal)
        return BS_ERR_BINLOG;
    bs_binlog *binlog = core->binlog;
    if (!binlog)
        return 0;
    int result = bs_binlog_write(binlog, now);
    if (result == 0 && bs_binlog_sync_due(binlog, now)) {
        mark_started(core);
        /* No reply waits for deferred entries, so they must not delay others here, nor must the replicator. */
        if (here && binlog->dirty && !binlog->replica) {
            result = bs_binlog_sync_here(binlog, now);
            if (result == 0)
                release_replies(core);
        } else {
            result = bs_binlog_start_sync(binlog);
        }
    }
    if (result < 0)
        set_fatal(core);
    return result < 0 ? BS_ERR_BINLOG : 0;
}

int bs_round_poll(bs_core *core, bool wait, bs_now now)
{
    int ended = bs_binlog_poll(core->binlog, wait, now);
    if (ended < 0)
        set_fatal(core);
    if (ended > 0)
        release_replies(core);
    return ended < 0 ? BS_ERR_BINLOG : 0;
}

/* Syncs the copies of moves within this shard, so that a stop leaves no job and its copy. */
static int end_moves(bs_core *core, bs_now now)
{
    bs_binlog *binlog = core->binlog;
    if (!core->server.queue.first_move || !binlog)
        return 0;
    if (bs_binlog_poll(binlog, true, now) < 0 || bs_binlog_write(binlog, now) < 0 || bs_binlog_sync_here(binlog, now) < 0)
        return BS_ERR_BINLOG;
    bs_moves_run(&core->server, now);
    return 0;
}

/* Another server takes over, or this one after its restart: clients end the jobs there that they have reserved here. */
static void keep_reservations(bs_core *core, bs_now now)
{
    const bs_sessions *sessions = &core->server.queue.sessions;
    uint32_t lost = 0;
    for (uint32_t i = 0; i < sessions->count && core->binlog && core->binlog->replica; i++) {
        const bs_session *session = sessions->slots[i];
        const bool has_jobs = session && !session->claiming && !session->mover;
        for (uint32_t j = 0; has_jobs && j < session->reserved.count; j++)
            lost += !bs_binlog_keep_reserved(core->binlog, session->reserved.slots[j].item, now);
    }
    if (lost > 0)
        bs_events_log(&core->server.events, BS_WARNING,
                      "no space to keep the reservations of %u jobs; the next server lets others reserve them", lost);
}

int bs_round_stop(bs_core *core, bs_now now)
{
    const bool failed = end_moves(core, now) != 0;
    if (!failed)
        keep_reservations(core, now);
    if (failed || bs_binlog_stop(core->binlog, now) != 0) {
        set_fatal(core);
        return BS_ERR_BINLOG;
    }
    mark_started(core);
    release_replies(core);
    bs_latency_end(&core->server.latency, now.mono);
    if (holds_lease(core))
        send_replies(core, now);
    return 0;
}

static void run_round(bs_core *core, const struct epoll_event *events, int count, bs_now now)
{
    bs_latency_begin(&core->server.latency, now.mono);
    if (bs_round_poll(core, false, now) != 0)
        return;
    core->server.tracing.now = now.mono;
    (void)bs_queue_tick(&core->server.queue, now);
    bs_slow_tick(&core->server, now.mono);
    bs_claims_tick(&core->server, now);
    bs_reserves_tick(&core->server, now);
    (void)bs_timeouts_tick(core, now);
    bs_overdue_log_tick(core, now);
    if (bs_barrier_next(&core->server) <= now.mono)
        bs_barrier_tick(&core->server, now);
    run_more_input(core, now);
    for (int i = 0; i < count; i++)
        take_event(core, &events[i], now);
    bs_links_read_rings(core, now);
    if (bs_moves_due(&core->server))
        bs_moves_run(&core->server, now);
    do {
        run_list(core, &core->server.runnable, bs_connection_run, now);
        bs_reserves_run(&core->server, now);
    } while (core->server.runnable.first);
    if (core->server.queue.job_waits.first_ended)
        (void)bs_job_waits_answer(&core->server.queue, ANSWERS_PER_ROUND, now);
    if (core->server.first_long_command)
        bs_long_commands_run(&core->server, bs_distinct_time(&core->server, now));
    if (bs_barrier_busy(&core->server))
        bs_barrier_round(&core->server, (uint32_t)count, count < EVENTS_PER_ROUND, now);
    bool here = has_one_active_client(core);
    if (here)
        bs_links_send(core); /* frames need not wait for a sync in this thread */
    if (bs_round_commit(core, now, here) != 0)
        return;
    if (bs_latency_pending(&core->server.latency))
        bs_latency_end(&core->server.latency, bs_clock_mono());
    if (holds_lease(core))
        send_replies(core, now);
}

static int64_t next_time(const bs_core *core)
{
    const bs_server *server = &core->server;
    const int64_t times[] = {
        bs_heap_first_key(&server->queue.tube_times),
        bs_heap_first_key(&server->queue.session_times),
        server->queue.keys_at,
        bs_heap_first_key(&server->timeouts),
        bs_pending_claims_next(server),
        bs_reserves_next(server),
        bs_barrier_next(server),
        bs_slow_next(server),
        bs_binlog_next_sync(core->binlog),
        bs_binlog_next_round(core->binlog),
        bs_overdue_log_next(core),
    };
    int64_t next = INT64_MAX;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        next = times[i] < next ? times[i] : next;
    return next;
}

/* Wakes the core at this time or earlier. An earlier timer stays, because one useless wake-up is cheaper than the
 * system call to set it. */
static void arm_timer(bs_core *core, int64_t at)
{
    if (at >= core->timer_at)
        return;
    core->timer_at = at;
    struct itimerspec when = {0};
    int64_t safe = at > 0 ? at : 1; /* 0 would disarm it */
    when.it_value.tv_sec = safe / BS_SECOND;
    when.it_value.tv_nsec = safe % BS_SECOND;
    (void)timerfd_settime(core->timer_fd, TFD_TIMER_ABSTIME, &when, NULL); /* fails for invalid times only */
}

static int flags_of(const bs_core *core)
{
    return (core->server.events.count || core->server.events.lost ? BS_RUN_EVENTS : 0) |
           (core->server.upcalls.count > 0 ? BS_RUN_UPCALLS : 0) |
           (has_work(core) || core->round_due ? BS_RUN_MORE : 0) | (core->watched_readable ? BS_RUN_EXTERNAL : 0) |
           (core->fatal ? BS_RUN_FATAL : 0);
}

static bool has_several_sessions(const bs_core *core)
{
    const bs_sessions *sessions = &core->server.queue.sessions;
    return sessions->count - sessions->free_count > 1;
}

int bs_core_run(bs_core *core, int64_t budget_ns, int linger)
{
    struct epoll_event events[EVENTS_PER_ROUND];
    int64_t mono = bs_clock_mono();
    const int64_t end = mono + budget_ns;
    core->watched_readable = false;
    bs_links_awake(core);
    while (!core->fatal) {
        bool busy = has_work(core) || core->round_due || next_time(core) <= mono;
        if (linger && !busy && core->sent_to_worker && has_several_sessions(core)) {
            /* When the other worker and the clients have run, there may be messages: that costs less than to sleep and
             * to be woken. With 16 clients 1.5 times the jobs for a third less CPU. */
            (void)sched_yield();
            busy = bs_links_have_messages(core);
        }
        core->sent_to_worker = false;
        if (linger && !busy)
            busy = !bs_links_sleep(core);
        if (linger && !busy) {
            int64_t next = next_time(core);
            arm_timer(core, next < end ? next : end);
        }
        /* Without a timeout of epoll_wait, because the timer is armed. */
        int count = epoll_wait(core->epoll_fd, events, EVENTS_PER_ROUND, linger && !busy ? -1 : 0);
        if (count < 0)
            count = 0; /* interrupted by a signal */
        bs_links_awake(core);
        const bs_now now = bs_now_read();
        mono = now.mono;
        if (count == 0 && !busy)
            break;
        core->round_due = false;
        run_round(core, events, count, now);
        if (core->server.events.count || core->server.upcalls.count > 0 || core->watched_readable || mono >= end)
            break;
    }
    if (!core->fatal)
        arm_timer(core, next_time(core));
    return flags_of(core) | (bs_links_sleep(core) ? 0 : BS_RUN_MORE); /* the caller may wait for epoll_fd */
}
