/* The state of one worker that commands work on. Sockets are in core_state.h. */
#ifndef BS_SERVER_STATE_H
#define BS_SERVER_STATE_H

#include "base/event_queue.h"
#include "links/outbox.h"
#include "protocol/parser.h"
#include "queue/queue_state.h"
#include "queue/session.h"
#include "server/latency.h"
#include "server/upcall_queue.h"

/* The state of another worker. BUSY: it gets no commands until its outbox is shorter. */
enum { BS_PEER_DOWN, BS_PEER_UP, BS_PEER_BUSY };

/* claims.h: a claim, or a waiter for all claims up to this number. */
typedef struct {
    uint64_t number;
    uint64_t session;
    bool request; /* the waiter is a request of a reserve (bs_remote.deferred), not a command */
    int64_t at;   /* mono; when the claim is put back */
} bs_pending_claim;

/* By number. */
typedef struct {
    bs_pending_claim *items;
    uint32_t count;
    uint32_t capacity;
} bs_pending_claim_list;

typedef struct {
    bs_pending_claim_list claims;
    bs_pending_claim_list waiters;
    uint64_t last;
} bs_pending_claims;

/* barrier.h: a waiter: a session, or another worker that has sent `token`. */
typedef struct {
    uint64_t session;
    uint64_t token;
    size_t received; /* bytes of the session's input at the start of the barrier: commands that it covers */
    int64_t until;   /* mono; the wait ends then in any case */
    uint32_t shard;
    bool arrival;    /* that worker sent a connection; the token is its number */
    bool begun;
    bool done;       /* all workers have answered */
} bs_barrier_waiter;

typedef struct {
    bs_barrier_waiter *waiters;
    uint32_t count;
    uint32_t capacity;
    uint64_t number;            /* of the running barrier, or of the last one */
    int64_t until;              /* mono */
    uint32_t missing;
    bool runs;
    bool wanted;                /* another one must start */
    bool asked[BS_MAX_WORKERS]; /* and has not answered */
} bs_barrier;

/* A SYNC of another worker that is not answered yet; token 0: none. */
typedef struct {
    uint64_t token;
    uint32_t rounds; /* that took all pending events */
    uint32_t events; /* taken since the last such round */
} bs_barrier_request;

/* A tube that a migrated connection uses or watches; `number` counts the migrations to that worker. */
typedef struct {
    bs_tube *tube;
    uint64_t number;
    uint32_t shard;
} bs_pinned_tube;

/* The kinds of barriers: indices, and the lowest bit of a token. */
enum { BS_BARRIER_LOCAL, BS_BARRIER_GLOBAL, BS_BARRIER_KINDS };

typedef struct {
    bs_barrier of[BS_BARRIER_KINDS];
    bs_barrier_request requests[BS_MAX_WORKERS][BS_BARRIER_KINDS];
    uint32_t open_requests;    /* SYNCs not answered */
    bool late[BS_MAX_WORKERS]; /* did not answer in time, and has sent nothing since */
    bs_census census[BS_MAX_WORKERS];
    uint64_t moves;            /* of this worker */
    uint64_t moved_out[BS_MAX_WORKERS];
    uint64_t moved_in[BS_MAX_WORKERS];
    bool moved;                /* the others have no census with the last migration */
    bs_pinned_tube *pinned;
    uint32_t pinned_count;
    uint32_t pinned_capacity;
    uint64_t producers;        /* of all workers, as of the last `stats` */
    uint64_t workers;
} bs_barriers;

/* trace.h, slow_log.h. */
typedef struct {
    int level;                 /* BS_TRACE_ */
    int64_t slow_ns;           /* 0: no command is slow */
    int64_t now;               /* mono: of the round or the call */
    int64_t clock;             /* mono: when replies leave; only while slow_ns is set */
    const bs_command *command; /* the current command, or NULL */
    uint64_t put;              /* its job, if it is a complete put */
    int64_t second;            /* mono: the second in which `lines` were logged */
    uint32_t lines;
    uint64_t skipped;
} bs_tracing;

typedef struct bs_long_command bs_long_command; /* long_commands.h */
typedef struct bs_remote_move bs_remote_move;   /* remote_moves.h */

/* Moves of jobs to one other worker, in the order of their puts. */
typedef struct {
    uint64_t mover; /* the session that sends these puts; 0: none yet */
    bs_remote_move *first;
    bs_remote_move *last;
} bs_remote_moves;

typedef struct bs_server bs_server;

struct bs_server {
    bs_queue queue;
    bs_events events;
    bs_upcalls upcalls;
    bs_pending_claims pending_claims;
    uint8_t peers[BS_MAX_WORKERS];      /* BS_PEER_ of each */
    bs_outbox outboxes[BS_MAX_WORKERS]; /* to them */
    uint32_t max_job_size;              /* bytes, without CR LF */
    bs_limits limits;
    bs_heap timeouts; /* sessions by their next check (timeout_schedule.h) */
    bs_session_list dirty;
    bs_session_list held;
    bs_session_list runnable;
    bs_session_list more_input;
    bs_session_list reserving;
    bs_session_list asking;
    bs_long_command *first_long_command;
    bs_long_command *last_long_command;
    bs_remote_moves moves[BS_MAX_WORKERS];
    uint32_t answered_moves;
    bs_tracing tracing;
    int64_t latest; /* mono; of the last command (command_stream.c) */
    bs_latency latency;
    int64_t timeouts_checked; /* mono; of the last check */
    bool ending;              /* clients execute nothing any more (bs_core_end_commands) */
    bool log_overdue;         /* puts and the like are refused (overdue_log.h) */
    bs_barriers barriers;
    void (*resume)(bs_server *server, bs_session *session, bs_now now); /* bs_stream_resume */
};

/* Ends the connection at once, because replies were lost or are out of order. */
static inline void bs_session_break(bs_server *server, bs_session *session)
{
    session->broken = true;
    bs_session_list_add(&server->dirty, session);
}

#endif
