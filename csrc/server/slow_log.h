/* Commands whose reply takes too long: when they arrived, and what their reply waited for.
 *
 * The time runs from the round that had the whole command until its reply may be sent. It excludes the wait of a
 * reserve for a job, and the time that a client takes to read.
 *
 * The replies of one session that may leave together are a batch, and only its first command is recorded, because a
 * record for each command would be too slow. Commands without an immediate reply have a record each, in the order of
 * their replies. Their number is bounded; further ones are counted without a record.
 */
#ifndef BS_SLOW_LOG_H
#define BS_SLOW_LOG_H

#include "server/server_state.h"

/* A command without its reply, or the first command of a batch. */
typedef struct {
    int64_t at;     /* mono */
    uint64_t job;   /* 0: none */
    char *tube;     /* owned; NULL: none */
    uint32_t count; /* of the batch */
    uint8_t verb;   /* bs_verb, or BS_VERBS: no command */
    uint8_t cause;  /* BS_SLOW_ */
    uint8_t shard;  /* of BS_SLOW_WORKER */
    bool waits;     /* for a job, or for Python */
} bs_slow_record;

/* All zeros is valid for a session without outstanding commands. */
typedef struct {
    bool answered;             /* the current command has its reply */
    int64_t since;             /* mono: the next command is stalled since then; 0: it is not */
    uint32_t count;            /* of records */
    uint32_t unrecorded;       /* outstanding commands after those in the ring */
    bs_slow_record batches[3]; /* by bs_hold */
    bs_slow_record *ring;
    uint32_t head;
    uint32_t capacity;         /* a power of two, or 0 */
} bs_slow;

struct bs_trace {
    uint64_t connection;          /* unique over all workers, unchanged by a migration */
    int64_t opened;               /* mono */
    uint64_t commands;
    bool logged;                  /* the stalled command is already logged */
    char address[BS_ADDRESS_MAX]; /* empty without a socket */
    bs_slow slow;
};

/* Commands of the session may be outstanding. */
void bs_slow_begin(bs_slow *slow, const bs_session *session);
void bs_slow_free(bs_slow *slow);

/* Returns the tube that a command names or implies; length 0: none. */
const char *bs_command_tube(const bs_session *session, const bs_command *command, size_t *length);

/* The current command has no reply yet. */
void bs_slow_unanswered(bs_server *server, bs_session *session);

/* Helpers of bs_slow_replied: a record of the current command; moving the oldest record to a batch. */
bs_slow_record bs_slow_current(const bs_server *server, const bs_session *session);
void bs_slow_pop(bs_server *server, const bs_session *session, bs_slow_record *batch, uint64_t job, uint32_t shard);

enum { BS_NO_SHARD = 256 };

/* A whole reply is in the output; `job` is its job, or 0. It has come from `shard`, or BS_NO_SHARD. */
static inline void bs_slow_replied(bs_server *server, const bs_session *session, bs_slow *slow, uint64_t job,
                                   uint32_t shard)
{
    bs_slow_record *batch = &slow->batches[bs_session_hold(session)];
    slow->answered = true;
    if (slow->count || slow->unrecorded)
        bs_slow_pop(server, session, batch, job, shard);
    else if (batch->count++ == 0)
        *batch = bs_slow_current(server, session);
}

/* A sync has started or ended, as in session.h. */
void bs_slow_sync_started(bs_slow *slow);
void bs_slow_sync_ended(bs_slow *slow);

/* Logs the batch that is about to be sent if it is slow. */
void bs_slow_log_batch(bs_server *server, const bs_session *session);

/* Logs the number of skipped lines once a second; bs_slow_next is when, INT64_MAX: never. */
void bs_slow_tick(bs_server *server, int64_t now);
int64_t bs_slow_next(const bs_server *server);

#endif
