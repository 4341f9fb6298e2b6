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

#include "server/trace_state.h"

/* Commands of the session may be outstanding. */
void bs_slow_begin(bs_slow *slow, const bs_session *session);
void bs_slow_free(bs_slow *slow);

/* Returns the tube that a command names or implies; length 0: none. */
const char *bs_command_tube(const bs_session *session, const bs_command *command, size_t *length);

/* The current command has no reply yet. */
void bs_slow_unanswered(bs_server *server, bs_session *session);

/* Helpers of bs_slow_replied. */
void bs_slow_first(bs_server *server, const bs_session *session, bs_slow_record *batch);
void bs_slow_pop(bs_server *server, const bs_session *session, bs_slow_record *batch, uint64_t job, uint32_t shard);

enum { BS_NO_SHARD = 256 };

/* A whole reply is in the output; `job` is its job, or 0. It has come from `shard`, or BS_NO_SHARD. */
static inline void bs_slow_replied(bs_server *server, const bs_session *session, bs_slow *slow, uint64_t job,
                                   uint32_t shard)
{
    const size_t length = bs_bytes_length(&session->out);
    bs_slow_record *batch = &slow->batches[session->may_leave == length    ? BS_SLOW_FREE
                                           : session->after_sync == length ? BS_SLOW_SYNCING
                                                                           : BS_SLOW_WRITTEN];
    slow->answered = true;
    if (slow->count || slow->unrecorded)
        bs_slow_pop(server, session, batch, job, shard);
    else if (batch->count++ == 0)
        bs_slow_first(server, session, batch);
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
