/* The state of a session while other workers have a part in it. remote_commands.h, reply_relay.c and claims.h use it.
 */
#ifndef BS_REMOTE_STATE_H
#define BS_REMOTE_STATE_H

#include <stdlib.h>

#include "server/server_state.h"
#include "shards/multi_shard_reserve.h"

enum {
    BS_REPLY_HEAD_MAX = 240, /* JOB of a batch, with the longest name */
    BS_OUTSTANDING_MAX = 128 /* most replies of other workers that one session waits for */
};

/* Whether the tube of the next command exists at its worker. */
enum { BS_TUBE_UNKNOWN, BS_TUBE_EXISTS, BS_TUBE_NEW };

/* Times at which the commands with outstanding replies were complete, in order (latency.h). */
typedef struct {
    uint32_t since_us[BS_OUTSTANDING_MAX]; /* mono; microseconds, modulo 2^32 */
    uint8_t verb[BS_OUTSTANDING_MAX];
    uint8_t first;
    uint8_t count;
    bool more; /* than fit; these are not timed, nor are others until all replies have arrived */
} bs_outstanding_times;

/* shard_waits.h. Of a proxy: token, job and active. */
typedef struct {
    uint64_t job;
    uint64_t token;
    bs_shard_set owners;     /* shards that may have the job */
    bs_shard_set asked;      /* shards that need a CANCEL */
    bs_shard_set unanswered;
    bool active;
    bool polls;              /* its timeout is 0 */
    bool soon;               /* a job of the session times out within a second */
    bool concluded;          /* the outcome is known */
} bs_shard_wait;

struct bs_remote {
    bs_shard_set holding_shards;               /* where it may hold jobs */
    bs_shard_set watching_shards;              /* that have its watch list */
    bs_shard_set contacted_shards;             /* that have got any frame about it, and need its CLOSE */
    bs_reserve reserve;                        /* of a session at home */
    bs_shard_wait wait;                        /* of a session at home, or of its proxy */
    bool reserve_starts;                       /* `reserve` has its parameters and has not begun */
    uint8_t waited;                            /* BS_WAITED_: the end of a wait at home, not processed yet; 0: none */
    uint32_t deferred;                         /* BS_FRAME_: a request for this shard that waits for pending claims */
    bs_reserve_step deferred_step;
    uint64_t token;                            /* of the running or last wait (claims.h) */
    uint64_t claimed;                          /* the job it has claimed; 0: none */
    int64_t claimed_since;                     /* wall; when that job became ready */
    bs_tube *claimed_tube;                     /* of the claimed job while the claim is pending (claims.h) */
    uint64_t claim_number;                     /* of that claim */
    uint64_t body_left;                        /* bytes of the reply's body that must still be relayed */
    uint32_t batch_left;                       /* jobs of a batch that must still be relayed */
    uint64_t reserved_job;                     /* by this reply; 0: none */
    uint64_t outstanding_bytes;
    uint32_t outstanding;                      /* replies */
    uint32_t outstanding_shard;
    bs_outstanding_times timed;
    uint32_t remote_run;                       /* consecutive replies from `remote_run_shard` */
    uint32_t remote_run_shard;
    uint32_t refused_migrations;               /* how often it could not move */
    bool moving;
    bool query;                                /* the next reply is for this worker, not for the client */
    uint8_t tube_exists;                       /* BS_TUBE_ */
    bool holds_remote_job;                     /* a query has found a job held at another shard */
    bool echo_first;                           /* the next reply is known to be `echo` */
    char echo[BS_REPLY_HEAD_MAX];
    uint8_t head_length;
    char head[BS_REPLY_HEAD_MAX];              /* of a reply whose first line is incomplete */
};

/* Returns the session's remote state, allocated if needed; NULL without memory, and the session is broken. */
static inline bs_remote *bs_remote_of(bs_server *server, bs_session *session)
{
    if (!session->remote && !(session->remote = calloc(1, sizeof *session->remote)))
        bs_session_break(server, session);
    return session->remote;
}

static inline bool bs_remote_awaits_replies(const bs_session *session)
{
    return session->remote && session->remote->outstanding > 0;
}

/* Returns the number of outstanding replies. */
static inline uint32_t bs_remote_outstanding(const bs_session *session)
{
    return session->remote ? session->remote->outstanding : 0;
}

/* Decides most commands cheaply: no other worker has a part in the session, and the command's job or tube is local. */
static inline bool bs_command_is_local(bs_server *server, const bs_session *session, const bs_command *command)
{
    if (session->remote)
        return false;
    switch (command->verb) {
    case BS_VERB_PUT:
        return !session->use->remote;
    case BS_VERB_RESERVE:
    case BS_VERB_RESERVE_WITH_TIMEOUT:
        return session->watch_count == 1 && !session->watches[0].tube->remote;
    case BS_VERB_DELETE:
    case BS_VERB_RELEASE:
        return bs_job_table_seek(&server->queue.jobs, command->id) != NULL;
    default:
        return false;
    }
}

#endif
