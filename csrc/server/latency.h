/* The latency of commands: from the round that had a whole command until its reply may leave.
 *
 * Only rounds read the clock, so replies are counted by round and verb. The counts become latencies at the end of the
 * round, or of the sync that the replies wait for. The three lists correspond to the parts of a session's output
 * (session.h).
 *
 * The wait of a reserve is no latency, so its time starts when the wait ends. A remote command is timed at the client's
 * home worker, including the way there and back.
 */
#ifndef BS_LATENCY_H
#define BS_LATENCY_H

#include <assert.h>

#include "api/types.h"
#include "protocol/parser.h"
#include "queue/session.h"

/* The verb of a line that is no command. Like `quit`, it has no time. */
enum { BS_UNTIMED = BS_VERB_QUIT };

/* Replies to commands of one verb that were complete at the same time. */
typedef struct {
    int64_t since; /* mono */
    uint32_t verb;
    uint32_t count;
} bs_timed;

typedef struct {
    bs_timed *items;
    uint32_t count;
    uint32_t capacity;
} bs_timed_list;

static_assert(BS_UNTIMED <= 32, "bs_latency has a bit for each verb");

typedef struct {
    bs_histogram *histograms; /* by bs_verb; not owned */
    int64_t round;            /* mono; the start of this round */
    uint32_t verbs[3];        /* a bit for each verb with replies in this round, by bs_hold */
    uint32_t counts[3][BS_VERBS];
    bs_timed_list lists[3];   /* by bs_hold */
} bs_latency;

/* For a wait that has just ended, or a command timed from this round on. */
#define BS_SINCE_NOW INT64_MAX

/* Starts a round, or a call from outside of a round. */
void bs_latency_begin(bs_latency *latency, int64_t mono);

/* The session has the whole reply to a command that was complete at `since`. */
void bs_latency_replied(bs_latency *latency, const bs_session *session, uint32_t verb, int64_t since);

/* The next sync has started, or the running one has ended. */
void bs_latency_sync_started(bs_latency *latency);
void bs_latency_sync_ended(bs_latency *latency);

/* Returns whether bs_latency_end has anything to count. */
bool bs_latency_pending(const bs_latency *latency);

/* Counts the replies that may leave now. */
void bs_latency_end(bs_latency *latency, int64_t mono);

void bs_latency_free(bs_latency *latency);

#endif
