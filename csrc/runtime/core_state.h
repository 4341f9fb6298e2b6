/* The core as one worker runs it: the server, its binlog, and the descriptors around them. */
#ifndef BS_CORE_STATE_H
#define BS_CORE_STATE_H

#include "api/server.h"
#include "links/worker_link.h"
#include "server/server_state.h"

enum { BS_RECEIVE_BYTES = 64 * 1024 };

struct bs_core {
    bs_server server;
    bs_binlog *binlog; /* the queue's, owned */
    bs_config config;
    char *binlog_dir;  /* config.binlog_dir and config.colocate point to these two */
    char *colocate;
    int epoll_fd;
    int timer_fd;
    int wake_fd;       /* the threads of the binlog make it readable */
    int channel_fd;    /* descriptors arrive here; -1: none */
    int watched_fd;
    int64_t armed_for; /* what timer_fd is set to, INT64_MAX: off */
    bool external;     /* watched_fd was readable */
    bool fatal;
    bool round_due;      /* something was done between two calls of bs_core_run that a round has to end */
    bool many_held;         /* the last sync released several sessions */
    bs_peer peers[BS_MAX_WORKERS];
    char error[320];
    char received[BS_RECEIVE_BYTES];
};

static inline bool bs_core_has_upcalls(const bs_core *core)
{
    return core->server.upcalls.count > 0;
}

#endif
