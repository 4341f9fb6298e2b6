#include "runtime/connection.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "commands/command_stream.h"
#include "commands/long_commands.h"
#include "queue/queue.h"
#include "queue/tube_refs.h"
#include "server/slow_log.h"
#include "server/timeout_schedule.h"
#include "server/trace.h"
#include "workers/barrier.h"
#include "workers/claims.h"
#include "workers/remote_commands.h"
#include "workers/remote_moves.h"
#include "workers/reserve_requests.h"

enum {
    FDS_PER_MESSAGE = 64,
    RECEIVES_AT_STOP = 256 /* from a client, so that none that keeps sending delays the stop */
};

/* --- adopting sockets ------------------------------------------------------------------------------------- */

int bs_core_epoll(const bs_core *core, int op, int fd, uint64_t tag, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = tag};
    return epoll_ctl(core->epoll_fd, op, fd, &event) != 0 ? -errno : 0;
}

static uint32_t session_events(const bs_session *session)
{
    /* Edge-triggered, which saves system calls. */
    return EPOLLIN | EPOLLRDHUP | EPOLLET | (session->wants_out ? EPOLLOUT : 0U);
}

/* The parent compares the connections it has passed on with those closed, so one that never became a session counts as
 * closed. */
static void count_lost(bs_core *core, uint64_t count)
{
    core->server.queue.counters->total_connections += count;
    core->server.queue.adopted_new = core->server.queue.workers > 1;
    core->server.queue.counters->closed_connections += count;
}

static void count_lost_migration(bs_core *core)
{
    core->server.queue.counters->moved_in++;
    core->server.queue.counters->closed_connections++;
}

void bs_core_migration_lost(bs_core *core, uint32_t shard)
{
    count_lost_migration(core);
    bs_barrier_migrated_in(&core->server, shard);
    core->round_due = true;
}

bs_session *bs_connection_open(bs_core *core, int fd, bool moved)
{
    const int on = 1;
    bs_session *session = bs_refs_open_session(&core->server.queue, moved);
    if (!session) {
        (void)close(fd);
        if (moved)
            count_lost_migration(core);
        else
            count_lost(core, 1);
        return NULL;
    }
    session->fd = fd;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* fails for a Unix socket */
    bs_timeouts_begin(&core->server, session, bs_now_read());
    if (bs_core_epoll(core, EPOLL_CTL_ADD, fd, session->id, session_events(session)) == 0)
        return session;
    bs_core_end_session(core, session, bs_now_read());
    return NULL;
}

void bs_connection_trace(bs_core *core, bs_session *session, bs_now now)
{
    char address[BS_ADDRESS_MAX] = "";
    if (session->fd >= 0)
        bs_peer_address(session->fd, address);
    bs_trace_begin(&core->server, session, address, now);
}

int bs_core_adopt(bs_core *core, int fd)
{
    bs_session *session = bs_connection_open(core, fd, false);
    if (session && bs_trace_enabled(&core->server)) {
        bs_connection_trace(core, session, bs_now_read());
        bs_trace_accepted(&core->server, session);
    }
    return session ? 0 : -ENOMEM;
}

bool bs_core_receive_descriptors(bs_core *core)
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
                bs_events_log(&core->server.events, BS_ERROR, "cannot accept a connection: %s", strerror(-error));
        }
    }
    if (arrived < (uint64_t)length) {
        count_lost(core, (uint64_t)length - arrived);
        bs_events_log(&core->server.events, BS_ERROR,
                      "lost connections: no file descriptors left; raise the limit of open files");
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
    int error = bs_core_epoll(core, EPOLL_CTL_ADD, channel_fd, (uint64_t)channel_fd, EPOLLIN);
    if (!error)
        core->channel_fd = channel_fd;
    return error;
}

int bs_core_watch(bs_core *core, int fd)
{
    int error = bs_core_epoll(core, EPOLL_CTL_ADD, fd, (uint64_t)fd, EPOLLIN);
    if (!error)
        core->watched_fd = fd;
    return error;
}

/* --- bytes in and out ------------------------------------------------------------------------------------- */

/* Receives once. The next round reads the rest, so that no client blocks the others. */
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
        bs_session_break(&core->server, session);
}

/* Input of a session that waits stays in its socket. */
static void look_ahead(bs_core *core, bs_session *session, bs_now now)
{
    char bytes[BS_ABORT_BYTES];
    const ssize_t length = recv(session->fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK);
    if (length > 0)
        bs_stream_look_ahead(&core->server, session, bytes, (size_t)length, now);
}

void bs_connection_run(bs_core *core, bs_session *session, bs_now now)
{
    if (bs_bytes_length(&session->in) > 0 || session->drained)
        bs_stream_resume(&core->server, session, now);
    if (session->readable && !session->backlog && !bs_stream_blocked(&core->server, session))
        receive(core, session, now);
    if (session->waiting && session->readable)
        look_ahead(core, session, now);
    if (session->readable && !bs_stream_blocked(&core->server, session))
        bs_session_list_add(&core->server.more_input, session);
}

static void set_epollout(bs_core *core, bs_session *session, bool armed)
{
    if (session->wants_out == armed)
        return;
    session->wants_out = armed;
    if (bs_core_epoll(core, EPOLL_CTL_MOD, session->fd, session->id, session_events(session)) != 0)
        session->broken = true;
}

void bs_connection_send(bs_core *core, bs_session *session, bs_now now)
{
    if (session->fd < 0)
        return;
    bool was_blocked = bs_stream_blocked(&core->server, session);
    if (session->trace)
        bs_slow_log_batch(&core->server, session);
    while (session->may_leave > 0 && !session->broken) {
        ssize_t sent = send(session->fd, bs_bytes_data(&session->out), session->may_leave, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent >= 0) {
            bs_session_sent(session, (size_t)sent);
            session->sent_at = now.mono;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            const bool first = !session->wants_out;
            set_epollout(core, session, true);
            if (first)
                bs_timeouts_blocked(&core->server, session, now);
            break;
        } else if (errno != EINTR) {
            session->broken = true;
        }
    }
    if (session->may_leave == 0 && !session->broken)
        set_epollout(core, session, false);
    if (session->broken || (session->closing && bs_bytes_length(&session->out) == 0)) {
        bs_core_end_session(core, session, now);
        core->round_due = true; /* which publishes its jobs and tubes to other workers */
    } else if (was_blocked && !bs_stream_blocked(&core->server, session))
        bs_session_list_add(&core->server.runnable, session);
}

/* --- sessions that go on or end --------------------------------------------------------------------------- */

void bs_core_run_runnable(bs_core *core, bs_now now)
{
    bs_session_list *runnable = &core->server.runnable;
    for (;;) {
        bs_reserves_run(&core->server, now);
        bs_long_commands_run_unconnected(&core->server, now);
        if (bs_moves_due(&core->server))
            bs_moves_run(&core->server, now);
        bs_session *session = runnable->first;
        if (!session)
            return;
        bs_session_list_remove(runnable, session);
        if (session->fd >= 0)
            bs_session_list_add(&core->server.more_input, session);
        else
            bs_stream_resume(&core->server, session, now);
    }
}

void bs_core_resume_sessions(bs_core *core, bs_now now)
{
    bs_core_run_runnable(core, now);
    core->round_due = true;
}

void bs_core_wake(bs_core *core)
{
    uint64_t one = 1;
    core->round_due = true;
    ssize_t written = write(core->wake_fd, &one, sizeof one);
    (void)written; /* a full counter is readable as well */
}

void bs_core_end_session(bs_core *core, bs_session *session, bs_now now)
{
    bs_server *server = &core->server;
    bs_session_list *lists[] = {&server->dirty,      &server->held,      &server->runnable,
                                &server->more_input, &server->reserving, &server->asking};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        bs_session_list_remove(lists[i], session);
    if (session->trace) {
        bs_trace_closed(&core->server, session, session->fd >= 0 ? bs_now_read() : now);
        bs_trace_free(session->trace);
        session->trace = NULL;
    }
    bs_claim_abandon(&core->server, session, now);
    bs_timeouts_remove(&core->server, session);
    if (!session->proxy)
        bs_remote_end(&core->server, session);
    if (session->remote && !session->proxy)
        (void)bs_upcalls_add(&core->server.upcalls, BS_UPCALL_SESSION_CLOSED, core->server.queue.shard, session->id);
    const int fd = session->fd;
    bs_queue_close(&core->server.queue, session, now);
    if (fd >= 0)
        (void)close(fd); /* last, so that a client that reads the end finds the session gone */
}

/* --- the end of the server -------------------------------------------------------------------------------- */

void bs_core_end_commands(bs_core *core)
{
    core->server.ending = true;
    bs_core_wake(core);
}

uint64_t bs_core_unsent(const bs_core *core)
{
    const bs_sessions *sessions = &core->server.queue.sessions;
    uint64_t unsent = 0;
    for (uint32_t i = 0; i < sessions->count; i++) {
        const bs_session *session = sessions->slots[i];
        if (!session || session->fd < 0 || session->broken)
            continue;
        int in_kernel = 0;
        if (ioctl(session->fd, SIOCOUTQ, &in_kernel) != 0)
            in_kernel = 0; /* the connection is gone */
        unsent += bs_bytes_length(&session->out) + (uint64_t)in_kernel + bs_remote_outstanding(session);
    }
    return unsent;
}

void bs_connections_discard_input(bs_core *core)
{
    const bs_sessions *sessions = &core->server.queue.sessions;
    for (uint32_t i = 0; i < sessions->count; i++) {
        const bs_session *session = sessions->slots[i];
        for (int n = 0; session && session->fd >= 0 && n < RECEIVES_AT_STOP; n++)
            if (recv(session->fd, core->received, sizeof core->received, MSG_DONTWAIT) <= 0)
                break;
    }
}
