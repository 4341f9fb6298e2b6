/* Barriers between workers: a reply about all workers reflects everything that happened before its command.
 *
 * Workers send their counts on their links (COUNT, CENSUS), so a worker lacks those that are on their way. `stats`,
 * `stats-tube`, `list-tubes` and `pause-tube` depend on them. Before one of these is executed, a *barrier* requests the
 * counts of every other worker (SYNC) and waits for the answers (SYNCED).
 *
 *   S1  A worker answers SYNC after the rounds that took every event pending when SYNC arrived. The answer follows
 *       their counts on the same link.
 *   S2  A *local* barrier brings the counts of the others to this worker; that suffices for a tube of this worker. A
 *       *global* one makes the others run a local barrier first. Local barriers never wait for global ones.
 *   S3  The old worker counts a migrating connection until the new one does. Each worker sends the sum of its
 *       migrations, in order with its counts. A reply waits until these sums cancel out, because otherwise a connection
 *       is on its way.
 *   S4  The old worker pins the connection's tubes until every worker has the counts of the new one (ARRIVED).
 *
 * A worker that does not answer within BS_BARRIER_LIMIT_NS is left out until it sends something.
 */
#ifndef BS_BARRIER_H
#define BS_BARRIER_H

#include "protocol/parser.h"
#include "server/server_state.h"

#define BS_BARRIER_LIMIT_NS INT64_C(200000000)

/* Returns whether the reply to this command depends on the counts of other workers. */
static inline bool bs_barrier_concerns(const bs_command *command)
{
    return command->verb == BS_VERB_STATS_TUBE || command->verb == BS_VERB_PAUSE_TUBE ||
           command->verb == BS_VERB_STATS || command->verb == BS_VERB_LIST_TUBES;
}

/* Returns whether the command must wait for a barrier; then the session is stalled. The session has no outstanding
 * replies. */
bool bs_barrier_command(bs_server *server, bs_session *session, const bs_command *command);

/* Returns whether the next round has work here, even without events. */
static inline bool bs_barrier_busy(const bs_server *server)
{
    return server->barriers.open_requests > 0 || server->barriers.of[BS_BARRIER_LOCAL].wanted ||
           server->barriers.of[BS_BARRIER_GLOBAL].wanted;
}

/* Ends a round that took `events` events; `all`: it left none pending. */
void bs_barrier_round(bs_server *server, uint32_t events, bool all, bs_now now);

/* Returns when a barrier exceeds its time, INT64_MAX without any. */
int64_t bs_barrier_next(const bs_server *server);
void bs_barrier_tick(bs_server *server, bs_now now);

/* Sends every count that has changed since the last call: COUNT for each remote tube, CENSUS for connections. */
void bs_counts_send(bs_server *server);

/* Frames from another worker. */
void bs_barrier_requested(bs_server *server, uint32_t shard, uint64_t token);
void bs_barrier_answered(bs_server *server, uint32_t shard, uint64_t token, bs_now now);
void bs_barrier_census(bs_server *server, uint32_t shard, const bs_census *census, bs_now now);

/* Another worker is up or down. */
void bs_barrier_up(bs_server *server, uint32_t shard);
void bs_barrier_down(bs_server *server, uint32_t shard, bs_now now);

/* The session is about to migrate to that worker: pins its tubes. */
void bs_barrier_migrated_out(bs_server *server, const bs_session *session, uint32_t shard);

/* A connection has arrived from that worker, or was lost on its way. */
void bs_barrier_migrated_in(bs_server *server, uint32_t shard);

/* All workers have the counts of the first `number` connections sent to that worker. */
void bs_barrier_arrival_confirmed(bs_server *server, uint32_t shard, uint64_t number);

/* Sums producers and workers over all workers, for bs_core_roles. */
void bs_barrier_count_roles(bs_server *server);

void bs_barriers_free(bs_barriers *barriers);

#endif
