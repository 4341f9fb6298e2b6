/* The state of one worker that commands work on. Descriptors of sockets are in core_state.h. */
#ifndef BS_SERVER_STATE_H
#define BS_SERVER_STATE_H

#include "base/event_queue.h"
#include "base/upcall_queue.h"
#include "links/outbox.h"
#include "protocol/parser.h"
#include "queue/queue_state.h"
#include "queue/session.h"
#include "server/latency.h"

/* What another worker is to this one: BUSY takes no commands until it has taken those that wait for it. */
enum { BS_PEER_DOWN, BS_PEER_UP, BS_PEER_BUSY };

/* pending_claims.h: a claim, or one who waits for all claims up to this number. */
typedef struct {
    uint64_t number;
    uint64_t session;
    bool upcall;  /* the waiter is told by upcall */
    int64_t at; /* mono; the claim is put back then */
} bs_pending_claim;

/* In the order of their numbers. */
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

/* barrier.h: one who waits for a barrier: a session, or another worker that has sent `token`. */
typedef struct {
    uint64_t session;
    uint64_t token;
    size_t received; /* bytes of the session's input when the barrier began: commands that it covers */
    int64_t until;   /* mono; goes on then, whatever is missing */
    uint32_t shard;
    bool arrival;    /* that worker sent a connection, the token's number in its order */
    bool begun;
    bool done;       /* all have answered */
} bs_barrier_waiter;

typedef struct {
    bs_barrier_waiter *waiters;
    uint32_t count;
    uint32_t capacity;
    uint64_t number; /* of the one that runs, or the last one */
    int64_t until;   /* mono */
    uint32_t missing;
    bool runs;
    bool wanted;     /* another one is to begin */
    bool asked[BS_MAX_WORKERS]; /* and has not answered */
} bs_barrier;

/* A question of another worker that is not answered yet; token 0: none. */
typedef struct {
    uint64_t token;
    uint32_t rounds; /* that took all events there were */
    uint32_t events; /* taken since the last of those */
} bs_barrier_request;

/* What a worker tells of itself. */
typedef struct {
    uint64_t adopted; /* connections from the parent so far */
    uint64_t producers;
    uint64_t workers;
    uint64_t moves;   /* the sum of its moves: those of all workers cancel out when no connection is between two */
} bs_census;

/* A tube that a connection used or watched which has moved, the number-th to that worker. */
typedef struct {
    bs_tube *tube;
    uint64_t number;
    uint32_t shard;
} bs_held_tube;

typedef struct {
    bs_barrier local;
    bs_barrier global;
    struct {
        bs_barrier_request local;
        bs_barrier_request global;
    } requests[BS_MAX_WORKERS];
    uint32_t open_requests;   /* questions not answered */
    bool late[BS_MAX_WORKERS]; /* has not answered in time, and sent nothing since */
    bs_census census[BS_MAX_WORKERS];
    uint64_t moves;  /* this worker's */
    uint64_t moved_out[BS_MAX_WORKERS];
    uint64_t moved_in[BS_MAX_WORKERS];
    bool moved;      /* and the others do not know yet */
    bs_held_tube *held;
    uint32_t held_count;
    uint32_t held_capacity;
    uint64_t producers; /* of all workers, as counted for the last `stats` */
    uint64_t workers;
} bs_barriers;

/* trace.h, slow_log.h: what is to be told of clients. */
typedef struct {
    int level;       /* BS_TRACE_ */
    int64_t slow_ns; /* 0: no command is slow */
    int64_t now;     /* mono: of the round, or of what Python does */
    int64_t clock;   /* mono: replies leave; only while slow_ns is set */
    const bs_command *command; /* that is being executed, or NULL */
    uint64_t put;    /* its job, if it is a put that is complete */
    int64_t second;  /* mono: in which slow commands are counted */
    uint32_t lines;
    uint64_t skipped;
} bs_tracing;

typedef struct bs_server bs_server;

struct bs_server {
    bs_queue queue;
    bs_events events;
    bs_upcalls upcalls;
    bs_pending_claims pending_claims;
    uint8_t peers[BS_MAX_WORKERS]; /* BS_PEER_ of each */
    bs_outbox outboxes[BS_MAX_WORKERS]; /* what is for them */
    uint32_t max_job_size; /* bytes, without CR LF */
    bs_limits limits;
    bs_heap timeouts;      /* client_timeouts.h: sessions by the time when their client may have to be given up */
    bs_session_list dirty;
    bs_session_list held;
    bs_session_list runnable;
    bs_session_list more_input;
    bs_tracing tracing;
    int64_t latest; /* mono; the time of the last command, see command_stream.c */
    bs_latency latency;
    int64_t timeouts_checked;   /* mono; when patience was last looked after */
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
