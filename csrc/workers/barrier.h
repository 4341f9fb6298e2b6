/* Barriers between workers: an answer about all of them comes after everything that happened before its command.
 *
 * What a worker knows of the others travels on their links (COUNT, CENSUS), so it is behind by what is on its way. `stats`,
 * `stats-tube`, `list-tubes` and `pause-tube` depend on it. Before one of these is executed, a *barrier* asks every other
 * worker to send what it has (SYNC) and waits for the answers (SYNCED).
 *
 *   S1  A worker answers SYNC when it has finished the rounds that took every event that was there when SYNC came: the
 *       answer is behind what these have changed, on the same link.
 *   S2  A *near* barrier brings what the others know to this worker; that suffices for a tube of this worker. A *far* one
 *       asks the others to make a near barrier of their own first. Near ones never wait for far ones.
 *   S3  A connection that moves is counted at the worker that sent it until it is counted at the other one. Each worker
 *       tells the sum of its moves, in order with its counts; an answer waits until these sums cancel out, because a
 *       connection is between two workers otherwise.
 *   S4  A tube is held by the worker that a connection leaves until every worker knows that the connection uses or watches
 *       it at its new home (ARRIVED).
 *
 * A worker that does not answer within BS_BARRIER_LIMIT_NS is left out until it sends something again.
 */
#ifndef BS_BARRIER_H
#define BS_BARRIER_H

#include "protocol/parser.h"
#include "server/server_state.h"

#define BS_BARRIER_LIMIT_NS INT64_C(200000000)

/* Does the reply to this command depend on what other workers have not told yet? */
static inline bool bs_barrier_concerns(const bs_command *command)
{
    return command->verb == BS_VERB_STATS_TUBE || command->verb == BS_VERB_PAUSE_TUBE ||
           command->verb == BS_VERB_STATS || command->verb == BS_VERB_LIST_TUBES;
}

/* Must such a command wait for a barrier? Then the session is stalled. Not for one that waits for replies itself. */
bool bs_barrier_command(bs_server *server, bs_session *session, const bs_command *command);

/* These many bytes of the session's input have been executed. */
static inline void bs_barrier_executed(bs_session *session, size_t length)
{
    session->barrier_bytes -= length < session->barrier_bytes ? length : session->barrier_bytes;
}

/* Has the next round something to do here, whatever events there are? */
static inline bool bs_barrier_busy(const bs_server *server)
{
    return server->barriers.open_requests > 0 || server->barriers.local.wanted || server->barriers.global.wanted;
}

/* The end of a round that took so many events: all there were, or not. */
void bs_barrier_round(bs_server *server, uint32_t events, bool all, bs_now now);

/* When a barrier has lasted too long, INT64_MAX without any. */
int64_t bs_barrier_next(const bs_server *server);
void bs_barrier_tick(bs_server *server, bs_now now);

/* Frames of another worker. */
void bs_barrier_requested(bs_server *server, uint32_t shard, uint64_t token);
void bs_barrier_answered(bs_server *server, uint32_t shard, uint64_t token, bs_now now);
void bs_barrier_census(bs_server *server, uint32_t shard, const bs_census *census, bs_now now);

/* Another worker has come or gone. */
void bs_barrier_up(bs_server *server, uint32_t shard);
void bs_barrier_down(bs_server *server, uint32_t shard, bs_now now);

/* A session that is about to leave for that worker: its tubes are held. */
void bs_barrier_migrated_out(bs_server *server, const bs_session *session, uint32_t shard);

/* A connection has come from that worker, or was lost on the way. */
void bs_barrier_migrated_in(bs_server *server, uint32_t shard);

/* That worker has received these many connections, and everybody knows. */
void bs_barrier_arrival_confirmed(bs_server *server, uint32_t shard, uint64_t number);

/* Producers and workers among all connections, for bs_core_roles. */
void bs_barrier_count_roles(bs_server *server);

void bs_barriers_free(bs_barriers *barriers);

#endif
