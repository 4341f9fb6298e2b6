/* What a session needs while other workers have a part in it; remote_commands.h, reply_relay.h and claims.h work on it. */
#ifndef BS_REMOTE_STATE_H
#define BS_REMOTE_STATE_H

#include "server/server_state.h"

enum {
    BS_REPLY_HEAD_MAX = 224, /* USING and the longest name */
    BS_SHARD_WORDS = 4       /* of 64 bits: a set of BS_MAX_WORKERS shards */
};

enum { BS_OUTSTANDING_MAX = 128 }; /* replies of other workers that one session waits for */

/* Not asked, or forgotten as the command has been executed; and the two answers. */
enum { BS_TUBE_UNKNOWN, BS_TUBE_EXISTS, BS_TUBE_NEW };

/* When the commands were complete whose replies are to come, in their order; see latency.h. */
typedef struct {
    uint32_t since_us[BS_OUTSTANDING_MAX]; /* mono; microseconds, cut to 32 bits */
    uint8_t verb[BS_OUTSTANDING_MAX];
    uint8_t first;
    uint8_t count;
    bool more; /* than fit; those are not timed, nor are others until all have come */
} bs_outstanding_times;

/* What a session needs besides while other workers have a part in it. */
struct bs_remote {
    uint64_t holding_shards[BS_SHARD_WORDS]; /* shards where it may hold jobs */
    uint64_t watching_shards[BS_SHARD_WORDS]; /* shards that know what it watches there */
    uint64_t contacted_shards[BS_SHARD_WORDS]; /* shards that have been told anything of it, and have to be told of its end */
    uint64_t token;                /* claims.h: of the wait under way or ended here */
    uint64_t claimed;              /* and the job it has claimed, 0: none */
    int64_t claimed_since;         /* that job was ready since, wall */
    bs_tube *claimed_tube;              /* pending_claims.h: the tube of that job, until it is known whether it is taken */
    uint64_t claim_number;               /* and its number */
    uint64_t body_left;                /* bytes of the body of the reply that is being passed on */
    uint64_t reserved_job;               /* the job that this reply reserves, or 0 */
    uint64_t outstanding_bytes;
    uint32_t outstanding;                /* replies to come */
    uint32_t outstanding_shard;
    bs_outstanding_times timed;
    uint32_t remote_run;                 /* replies in a row that came from `away_shard` */
    uint32_t remote_run_shard;
    uint32_t refused_migrations;               /* how often it could not move */
    bool moving;
    bool query;                    /* the first reply to come is for this worker itself */
    uint8_t tube_exists;           /* BS_TUBE_: what has been said of the tube of the next command */
    bool holds_remote_job;          /* it was said that a job is held at another shard */
    bool echo_first;                   /* the first reply to come is known: it is `echo` */
    char echo[BS_REPLY_HEAD_MAX];
    uint8_t head_length;
    char head[BS_REPLY_HEAD_MAX];  /* the start of a reply whose first line is not complete */
};

static inline void bs_shard_set_add(uint64_t *set, uint32_t shard)
{
    set[shard / 64] |= UINT64_C(1) << shard % 64;
}

static inline void bs_shard_set_remove(uint64_t *set, uint32_t shard)
{
    set[shard / 64] &= ~(UINT64_C(1) << shard % 64);
}

static inline bool bs_shard_set_has(const uint64_t *set, uint32_t shard)
{
    return set[shard / 64] >> shard % 64 & 1;
}

/* The session's route, made now if need be; NULL when memory ran out, and the session is broken. */
bs_remote *bs_remote_of(bs_server *server, bs_session *session);

/* Are replies of other workers to come? */
static inline bool bs_remote_awaits_replies(const bs_session *session)
{
    return session->remote && session->remote->outstanding > 0;
}

/* How many of them? */
static inline uint32_t bs_remote_outstanding(const bs_session *session)
{
    return session->remote ? session->remote->outstanding : 0;
}

/* Most commands, told cheaply: no other worker has a part in the session, and what this one is about is here. */
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
