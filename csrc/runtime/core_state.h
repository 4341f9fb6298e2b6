/* The state of a core: the server, its binlog and its descriptors. */
#ifndef BS_CORE_STATE_H
#define BS_CORE_STATE_H

#include "api/server.h"
#include "links/worker_link.h"
#include "recovery/recovery.h"
#include "server/server_state.h"

enum { BS_RECEIVE_BYTES = 64 * 1024 };

struct bs_core {
    bs_server server;
    bs_binlog *binlog;     /* owned; the queue uses it */
    bs_recovery *recovery; /* owned; NULL except before the end of a start */
    bs_replica replica;    /* of the binlog; `shared` is NULL: not replicated */
    bs_config config;      /* its strings are owned */
    int epoll_fd;
    int timer_fd;
    int wake_fd;           /* readable when a thread of the binlog has finished */
    int channel_fd;        /* receives descriptors; -1: none */
    int watched_fd;
    uint32_t incarnation;  /* of this worker: bs_inbox */
    int64_t timer_at;      /* the time set in timer_fd, INT64_MAX: none */
    bool watched_readable; /* watched_fd was readable */
    bool sent_to_worker;   /* in the last round */
    bool fatal;
    bool round_due;        /* a call outside of bs_core_run needs a round */
    bool many_held;        /* the last sync released several sessions */
    int64_t closed_at;     /* mono; when overdue_log.c has closed the held sessions; 0: the log is not overdue */
    bs_peer peers[BS_MAX_WORKERS];
    char error[320];
    char received[BS_RECEIVE_BYTES];
};

static inline bs_session *bs_core_find(const bs_core *core, uint64_t id)
{
    return bs_sessions_find(&core->server.queue.sessions, id);
}

/* Finds the session of a call from outside of a round, whose commands are timed from `now` on. */
static inline bs_session *bs_core_begin_call(bs_core *core, uint64_t id, bs_now now)
{
    bs_latency_begin(&core->server.latency, now.mono);
    core->server.tracing.now = now.mono;
    return bs_core_find(core, id);
}

#endif
