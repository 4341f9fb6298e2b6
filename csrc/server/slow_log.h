/* Commands whose reply takes too long: when each has come, and what its reply waited for.
 *
 * Measured is the time from the round in which a command had come whole, with its body, to the moment when its reply
 * may be handed to the socket. Not measured is how long a reserve waits for a job, which its client has asked for, and
 * how long a client takes to read.
 *
 * Replies of one session that may leave together are one batch, of which only the first command is known: that costs
 * nearly nothing, where a record for each command would be felt. Only commands that are not answered as they are
 * executed have a record each; their replies come in their order. Of those there is a bound, and what is behind it is
 * not recorded.
 */
#ifndef BS_SLOW_LOG_H
#define BS_SLOW_LOG_H

#include "server/trace_state.h"

/* Commands of the session may be under way. */
void bs_slow_begin(bs_slow *slow, const bs_session *session);
void bs_slow_free(bs_slow *slow);

/* The tube that a command names or means; of length 0 if none. */
const char *bs_command_tube(const bs_session *session, const bs_command *command, size_t *length);

/* The command that is being executed has no reply yet. */
void bs_slow_unanswered(bs_server *server, bs_session *session);

/* These are for bs_slow_replied. */
void bs_slow_first(bs_server *server, const bs_session *session, bs_slow_record *batch);
void bs_slow_late(bs_server *server, const bs_session *session, bs_slow_record *batch, uint64_t job, uint32_t shard);

enum { BS_NO_SHARD = 256 };

/* A whole reply is in the output; `job` is what it brings, or 0. It has come from `shard`, or BS_NO_SHARD. */
static inline void bs_slow_replied(bs_server *server, const bs_session *session, bs_slow *slow, uint64_t job,
                                   uint32_t shard)
{
    const size_t length = bs_bytes_length(&session->out);
    bs_slow_record *batch = &slow->batches[session->may_leave == length    ? BS_SLOW_FREE
                                           : session->after_sync == length ? BS_SLOW_SYNCING
                                                                           : BS_SLOW_WRITTEN];
    slow->answered = true;
    if (slow->count || slow->unrecorded)
        bs_slow_late(server, session, batch, job, shard);
    else if (batch->count++ == 0)
        bs_slow_first(server, session, batch);
}

/* The parts of the session's output move on. */
void bs_slow_sync_started(bs_slow *slow);
void bs_slow_sync_ended(bs_slow *slow);

/* What may leave is about to be sent: tells if it comes late. */
void bs_slow_leaving(bs_server *server, const bs_session *session);

/* Says how many were left out of the log, once a second; the mono time when that is due, INT64_MAX: not at all. */
void bs_slow_tick(bs_server *server, int64_t now);
int64_t bs_slow_next(const bs_server *server);

#endif
