/* The core as one worker runs it: the server, its binlog, and the sockets around them.
 *
 * A *round* takes the events there are, executes every complete command, writes the binlog once, and sends every reply
 * that may leave. Order within a round matters:
 *   L1  The binlog is written before any reply of the round is sent, so that a process that dies has acknowledged
 *       nothing it did not write.
 *   L2  A sync is started before replies are sent, so that it runs meanwhile.
 *   L3  After a failed write or sync nothing is sent.
 */
#ifndef BS_LOOP_H
#define BS_LOOP_H

#include "api/core.h"
#include "links/worker_link.h"
#include "runtime/server_state.h"

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
    bool touched;      /* something was done between two calls of bs_core_run that a round has to end */
    bool many;         /* the last sync released several sessions */
    bs_peer peers[BS_MAX_WORKERS];
    char error[320];
    char received[BS_RECEIVE_BYTES];
};

/* These two: 0, or BS_ERR_BINLOG and the core is `fatal`. */

/* Ends a round but for sending: writes; when a sync is due starts it or, with `here`, does it. */
int bs_round_commit(bs_core *core, bs_now now, bool here);

/* Takes notice of a sync that has ended, waiting for it if asked to: its replies may leave. */
int bs_round_poll(bs_core *core, bool wait, bs_now now);

/* Sends what may leave, first to other workers, and closes the sessions that are done. */
void bs_round_send(bs_core *core, bs_now now);

/* Lets sessions without sockets go on that were served or have been answered. */
void bs_core_run_served(bs_core *core, bs_now now);

/* The caller may be back in its hub before it calls bs_core_run: this makes it come. */
void bs_core_wake(bs_core *core);

/* A session for a connected socket, which it owns; NULL when memory ran out, and the socket is closed. It is new, or
 * `moved` here and watches nothing yet. */
bs_session *bs_loop_adopt(bs_core *core, int fd, bool moved);

/* What is logged of clients is logged of this one, too. */
void bs_loop_trace(bs_core *core, bs_session *session, bs_now now);

/* Sends what may leave, and ends the session if it is done. */
void bs_loop_flush(bs_core *core, bs_session *session, bs_now now);

/* Ends a session of either kind. */
void bs_core_drop(bs_core *core, bs_session *session, bs_now now);

#endif
