#include "runtime/loop.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "workers/barrier.h"
#include "workers/claims.h"
#include "base/clock.h"
#include "workers/pending_claims.h"
#include "links/worker_links.h"
#include "workers/coordination.h"
#include "runtime/client_timeouts.h"
#include "protocol/command_stream.h"
#include "runtime/trace.h"
#include "queue/tube_refs.h"

enum {
    SECOND = 1000000000,
    EVENTS_PER_ROUND = 256,
    FDS_PER_MESSAGE = 64,
    MESSAGES_PER_ROUND = 8
};

/* --- taking over sockets ---------------------------------------------------------------------------- */

static int listen_to(const bs_core *core, int op, int fd, uint64_t tag, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = tag};
    return epoll_ctl(core->epoll_fd, op, fd, &event) != 0 ? -errno : 0;
}

static uint32_t session_events(const bs_session *session)
{
    /* Edge-triggered, so that no system call is spent on saying again what is wanted. */
    return EPOLLIN | EPOLLRDHUP | EPOLLET | (session->wants_out ? EPOLLOUT : 0U);
}

/* Whoever passes connections on counts them against those closed: one that never became a session is closed too. */
static void lost_connections(bs_core *core, uint64_t count)
{
    core->server.queue.counters->total_connections += count;
    core->server.queue.adopts = core->server.queue.workers > 1;
    core->server.queue.counters->closed_connections += count;
}

static void lost_move(bs_core *core)
{
    core->server.queue.counters->moved_in++;
    core->server.queue.counters->closed_connections++;
}

void bs_core_lost_move(bs_core *core, uint32_t shard)
{
    lost_move(core);
    bs_barrier_arrives(&core->server, shard);
    core->touched = true;
}

bs_session *bs_loop_adopt(bs_core *core, int fd, bool moved)
{
    const int on = 1;
    bs_session *session = bs_usage_open(&core->server.queue, moved);
    if (!session) {
        (void)close(fd);
        if (moved)
            lost_move(core);
        else
            lost_connections(core, 1);
        return NULL;
    }
    session->fd = fd;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* a Unix socket has no such option */
    bs_patience_begin(&core->server, session, bs_now_read());
    if (listen_to(core, EPOLL_CTL_ADD, fd, session->id, session_events(session)) == 0)
        return session;
    bs_core_drop(core, session, bs_now_read());
    return NULL;
}

void bs_loop_trace(bs_core *core, bs_session *session, bs_now now)
{
    char from[BS_FROM_MAX] = "";
    if (session->fd >= 0)
        bs_from(session->fd, from);
    bs_trace_begin(&core->server, session, from, now);
}

int bs_core_adopt(bs_core *core, int fd)
{
    bs_session *session = bs_loop_adopt(core, fd, false);
    if (session && bs_trace_wanted(&core->server)) {
        bs_loop_trace(core, session, bs_now_read());
        bs_trace_accepted(&core->server, session);
    }
    return session ? 0 : -ENOMEM;
}

/* One message with descriptors: false when there is none. */
static bool receive_descriptors(bs_core *core)
{
    char data[FDS_PER_MESSAGE];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(FDS_PER_MESSAGE * sizeof(int))];
    } control;
    struct iovec part = {data, sizeof data};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t length = recvmsg(core->channel_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0)
        return false;
    uint64_t arrived = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        arrived += count;
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            int error = bs_core_adopt(core, fd);
            if (error)
                bs_events_log(&core->server.events, BS_ERROR, "a connection was lost: %s", strerror(-error));
        }
    }
    if (arrived < (uint64_t)length) {
        lost_connections(core, (uint64_t)length - arrived);
        bs_events_log(&core->server.events, BS_ERROR, "connections were lost: this process has no descriptors left");
    }
    if (length == 0) { /* the other side is closed */
        (void)epoll_ctl(core->epoll_fd, EPOLL_CTL_DEL, core->channel_fd, NULL);
        core->channel_fd = -1;
        return false;
    }
    return true;
}

int bs_core_adopt_from(bs_core *core, int channel_fd)
{
    int error = listen_to(core, EPOLL_CTL_ADD, channel_fd, (uint64_t)channel_fd, EPOLLIN);
    if (!error)
        core->channel_fd = channel_fd;
    return error;
}

int bs_core_watch(bs_core *core, int fd)
{
    int error = listen_to(core, EPOLL_CTL_ADD, fd, (uint64_t)fd, EPOLLIN);
    if (!error)
        core->watched_fd = fd;
    return error;
}

/* --- bytes in and out ------------------------------------------------------------------------------- */

/* Receives once. What may be left is for the next round, so that no client keeps the others waiting. */
static void receive(bs_core *core, bs_session *session, bs_now now)
{
    ssize_t length = recv(session->fd, core->received, sizeof core->received, MSG_DONTWAIT);
    if (length > 0) {
        session->readable = session->eof || (size_t)length == sizeof core->received;
        bs_stream_feed(&core->server, session, core->received, (size_t)length, now);
        return;
    }
    if (length < 0 && errno == EINTR)
        return;
    session->readable = false;
    if (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return;
    if (length == 0)
        bs_stream_finish(&core->server, session, true, now);
    else
        bs_break_off(&core->server, session);
}

static void run_session(bs_core *core, bs_session *session, bs_now now)
{
    if (bs_bytes_length(&session->in) > 0 || session->drained)
        bs_stream_resume(&core->server, session, now);
    if (session->readable && !session->backlog && !bs_stream_blocked(&core->server, session))
        receive(core, session, now);
    if (session->readable && !bs_stream_blocked(&core->server, session))
        bs_session_list_add(&core->server.again, session);
}

static void want_out(bs_core *core, bs_session *session, bool wanted)
{
    if (session->wants_out == wanted)
        return;
    session->wants_out = wanted;
    if (listen_to(core, EPOLL_CTL_MOD, session->fd, session->id, session_events(session)) != 0)
        session->broken = true;
}

void bs_loop_flush(bs_core *core, bs_session *session, bs_now now)
{
    if (session->proxy) {
        bs_proxy_flush(core, session, now);
        return;
    }
    if (session->fd < 0)
        return;
    bool was_blocked = bs_stream_blocked(&core->server, session);
    if (session->trace)
        bs_slow_leaving(&core->server, session);
    while (session->may_leave > 0 && !session->broken) {
        ssize_t sent = send(session->fd, bs_bytes_data(&session->out), session->may_leave, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent >= 0) {
            bs_session_took(session, (size_t)sent);
            session->told = now.mono;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!session->wants_out)
                bs_patience_stuck(&core->server, session, now);
            want_out(core, session, true);
            break;
        } else if (errno != EINTR) {
            session->broken = true;
        }
    }
    if (session->may_leave == 0 && !session->broken)
        want_out(core, session, false);
    if (session->broken || (session->over && bs_bytes_length(&session->out) == 0))
        bs_core_drop(core, session, now);
    else if (was_blocked && !bs_stream_blocked(&core->server, session))
        bs_session_list_add(&core->server.runnable, session);
}

/* --- a round ---------------------------------------------------------------------------------------- */

static void drain_counter(int fd)
{
    uint64_t count;
    ssize_t length = read(fd, &count, sizeof count); /* only to make it unreadable */
    (void)length;
}

static void take_event(bs_core *core, const struct epoll_event *event, bs_now now)
{
    uint64_t tag = event->data.u64;
    if (tag == (uint64_t)core->wake_fd)
        return; /* run_round has seen it */
    if (tag == (uint64_t)core->timer_fd) {
        drain_counter(core->timer_fd);
        core->armed_for = INT64_MAX;
        return;
    }
    if (core->channel_fd >= 0 && tag == (uint64_t)core->channel_fd) {
        for (int i = 0; i < MESSAGES_PER_ROUND && core->channel_fd >= 0 && receive_descriptors(core); i++)
            continue;
        return;
    }
    if (core->watched_fd >= 0 && tag == (uint64_t)core->watched_fd) {
        core->external = true;
        return;
    }
    if (tag <= UINT32_MAX) {
        if (tag >= BS_PEER_TAG && event->events & ~(uint32_t)EPOLLOUT)
            bs_link_ready(core, (uint32_t)(tag - BS_PEER_TAG), now);
        return; /* what can be sent is, at the end of the round */
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
    run_session(core, session, now);
    if (session->over && bs_bytes_length(&session->out) == 0)
        bs_core_drop(core, session, now); /* the next command of this round finds it gone */
}

static void run_list(bs_core *core, bs_session_list *list, void (*run)(bs_core *, bs_session *, bs_now), bs_now now)
{
    for (bs_session *session; (session = list->first);) {
        bs_session_list_remove(list, session);
        run(core, session, now);
    }
}

/* Those that had more to read at the end of the last round. */
static void run_again(bs_core *core, bs_now now)
{
    bs_session *last = core->server.again.last;
    for (bs_session *session; (session = core->server.again.first);) {
        bs_session_list_remove(&core->server.again, session);
        run_session(core, session, now);
        if (session == last)
            break;
    }
}

static bool anything_to_do(const bs_core *core)
{
    return core->server.runnable.first || core->server.again.first || bs_barrier_busy(&core->server);
}

/* One client alone gains nothing from a sync on another thread, and pays for two wake-ups. */
static bool alone(const bs_core *core)
{
    const bs_session_list *held = &core->server.held;
    if (core->many || held->first != held->last || anything_to_do(core))
        return false;
    if (core->server.queue.counters->connections == 1)
        return true;
    /* poll, because epoll_wait would take an edge that nobody then acts on. */
    struct pollfd more = {.fd = core->epoll_fd, .events = POLLIN};
    return held->first && poll(&more, 1, 0) == 0;
}

void bs_round_send(bs_core *core, bs_now now)
{
    if (core->server.tracing.slow_ns > 0)
        core->server.tracing.clock = bs_now_read().mono; /* a write or a sync may have taken its time since `now` */
    for (bs_session *session = core->server.dirty.first, *next; session; session = next) {
        next = session->links[BS_LIST_DIRTY].next;
        if (!session->proxy)
            continue;
        bs_session_list_remove(&core->server.dirty, session);
        bs_proxy_flush(core, session, now);
    }
    bs_links_send(core);
    run_list(core, &core->server.dirty, bs_loop_flush, now);
}

static void run_round(bs_core *core, const struct epoll_event *events, int count, bs_now now)
{
    /* First the wake-up, then what it is for: the other way round, one for a sync that ends in between is lost. */
    for (int i = 0; i < count; i++)
        if (events[i].data.u64 == (uint64_t)core->wake_fd)
            drain_counter(core->wake_fd);
    bs_latency_begin(&core->server.latency, now.mono);
    if (bs_round_poll(core, false, now) != 0)
        return;
    core->server.tracing.now = now.mono;
    (void)bs_queue_tick(&core->server.queue, now);
    bs_slow_tick(&core->server, now.mono);
    bs_claims_tick(&core->server, now);
    (void)bs_patience_tick(core, now);
    if (bs_barrier_next(&core->server) <= now.mono)
        bs_barrier_tick(&core->server, now);
    run_again(core, now);
    for (int i = 0; i < count; i++)
        take_event(core, &events[i], now);
    run_list(core, &core->server.runnable, run_session, now);
    if (bs_barrier_busy(&core->server))
        bs_barrier_round(&core->server, (uint32_t)count, count < EVENTS_PER_ROUND, now);
    bool here = alone(core);
    if (here)
        bs_links_send(core); /* others need not wait for a sync in this thread */
    if (bs_round_commit(core, now, here) != 0)
        return;
    if (bs_latency_any(&core->server.latency))
        bs_latency_end(&core->server.latency, bs_clock_mono());
    bs_round_send(core, now);
}

static int64_t next_time(const bs_core *core)
{
    int64_t tubes = bs_heap_first_key(&core->server.queue.tube_times);
    int64_t sessions = bs_heap_first_key(&core->server.queue.session_times);
    int64_t doubts = bs_doubt_next(&core->server);
    int64_t patience = bs_heap_first_key(&core->server.patience);
    int64_t sync = bs_binlog_next_sync(core->binlog);
    int64_t next = tubes < sessions ? tubes : sessions;
    int64_t slow = bs_slow_next(&core->server);
    int64_t note = bs_binlog_next_round(core->binlog);
    int64_t barrier = bs_barrier_next(&core->server);
    next = doubts < next ? doubts : next;
    next = patience < next ? patience : next;
    next = slow < next ? slow : next;
    next = note < next ? note : next;
    next = barrier < next ? barrier : next;
    return sync < next ? sync : next;
}

/* Makes the timer wake us at this time or earlier. A timer that is too early stays: it wakes once for nothing, where
 * setting it would cost a system call, and on a virtual machine more. */
static void arm_timer(bs_core *core, int64_t at)
{
    if (at >= core->armed_for)
        return;
    core->armed_for = at;
    struct itimerspec when = {0};
    int64_t safe = at > 0 ? at : 1; /* zero would switch it off */
    when.it_value.tv_sec = safe / SECOND;
    when.it_value.tv_nsec = safe % SECOND;
    (void)timerfd_settime(core->timer_fd, TFD_TIMER_ABSTIME, &when, NULL); /* fails only for a bad time */
}

static int flags_of(const bs_core *core)
{
    return (core->server.events.count || core->server.events.lost ? BS_RUN_EVENTS : 0) |
           (bs_core_has_upcalls(core) ? BS_RUN_UPCALLS : 0) |
           (anything_to_do(core) ? BS_RUN_MORE : 0) | (core->external ? BS_RUN_EXTERNAL : 0) |
           (core->fatal ? BS_RUN_FATAL : 0);
}

int bs_core_run(bs_core *core, int64_t budget_ns, int linger)
{
    struct epoll_event events[EVENTS_PER_ROUND];
    bs_now now = bs_now_read();
    const int64_t end = now.mono + budget_ns;
    core->external = false;
    while (!core->fatal) {
        bool busy = anything_to_do(core) || core->touched || next_time(core) <= now.mono;
        if (linger && !busy) {
            int64_t next = next_time(core);
            arm_timer(core, next < end ? next : end);
        }
        /* Without a timeout: a timer for each wait would cost as much as the command that ends it. */
        int count = epoll_wait(core->epoll_fd, events, EVENTS_PER_ROUND, linger && !busy ? -1 : 0);
        if (count < 0)
            count = 0; /* interrupted by a signal */
        now = bs_now_read();
        if (count == 0 && !busy)
            break;
        core->touched = false;
        run_round(core, events, count, now);
        if (core->server.events.count || bs_core_has_upcalls(core) || core->external || now.mono >= end)
            break;
    }
    if (!core->fatal)
        arm_timer(core, next_time(core));
    return flags_of(core);
}
