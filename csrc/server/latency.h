/* How long commands take: from the round that had all of a command to when its reply may leave.
 *
 * The clock is read by rounds, not by commands, so here counts are kept by round and kind, and become latencies when
 * what they wait for has come: the end of the round, or that of the sync which their replies wait for. The three lists
 * follow those parts of a session's output (session.h).
 *
 * Of a reserve that waited, the wait is no latency: it begins anew when the wait ends. A command that another worker
 * carries out is timed where its client is, the way there and back included.
 */
#ifndef BS_LATENCY_H
#define BS_LATENCY_H

#include "api/types.h"
#include "protocol/parser.h"
#include "queue/session.h"

/* For bs_verb: a line that is no command. */
enum { BS_UNTIMED = BS_VERBS };

/* Replies to commands of one kind that were complete at one time. */
typedef struct {
    int64_t since; /* mono */
    uint32_t verb;
    uint32_t count;
} bs_timed;

typedef struct {
    bs_timed *items;
    size_t count;
    size_t capacity;
} bs_timed_list;

typedef struct {
    bs_histogram *histograms; /* by bs_verb; the caller's */
    int64_t round;            /* mono; when this round began */
    uint32_t verbs[3];        /* a bit for each with replies in this round, by bs_hold */
    uint32_t counts[3][BS_VERBS];
    bs_timed_list may_leave;
    bs_timed_list after_sync;
    bs_timed_list after_next;
} bs_latency;

/* Of a wait that has just ended, or of a command that is timed from this round on. */
#define BS_SINCE_NOW INT64_MAX

/* A round begins, or what is done outside of one. */
void bs_latency_begin(bs_latency *latency, int64_t mono);

/* The session has its whole reply to a command that was complete at `since`. */
void bs_latency_replied(bs_latency *latency, const bs_session *session, uint32_t verb, int64_t since);

/* The next sync has started, or the one under way has ended. */
void bs_latency_sync_started(bs_latency *latency);
void bs_latency_sync_ended(bs_latency *latency);

/* Is there anything that bs_latency_end would count? */
bool bs_latency_any(const bs_latency *latency);

/* What may leave does so now. */
void bs_latency_end(bs_latency *latency, int64_t mono);

void bs_latency_free(bs_latency *latency);

#endif
