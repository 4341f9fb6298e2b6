/* Multi-shard reserves: their requests to this shard and to others, and the frames and times that are their events.
 *
 * Requests to this shard are executed at once, or deferred until pending claims are decided (claims.h). The events that
 * a round causes here are processed at its end (`reserving`), because a session may be served in the middle of another
 * operation on its tube.
 */
#ifndef BS_RESERVE_REQUESTS_H
#define BS_RESERVE_REQUESTS_H

#include "server/remote_state.h"

/* After this time a reserve ignores shards that have not responded. Long enough for a slow disk, because a reserve
 * without a timeout may then miss a job. */
#define BS_HEADS_LIMIT_NS INT64_C(1000000000)

/* Returns whether other shards take part in a reserve of this session: they do not if the best job is here. */
bool bs_reserve_concerns_others(bs_server *server, const bs_session *session, bs_now now);

/* Returns the best priority of jobs at other shards, for a batch of jobs of this one; BS_WORST_PRIORITY without any. */
uint32_t bs_reserve_other_priority(const bs_server *server, const bs_session *session);

/* Begins a multi-shard reserve at the end of the round; the session is parked until its reply. */
void bs_reserve_begin(bs_server *server, bs_session *session, int64_t until);

/* Executes the request or response of worker `shard`. `session` is the proxy or, of a response, the session at home.
 * 0 or -EBADMSG. */
int bs_reserve_frame(bs_server *server, bs_session *session, uint32_t shard, const bs_frame *frame, bs_now now);

/* Processes the events of this round. */
void bs_reserves_run(bs_server *server, bs_now now);

/* Returns when the next request exceeds BS_HEADS_LIMIT_NS, INT64_MAX without any. */
int64_t bs_reserves_next(const bs_server *server);
void bs_reserves_tick(bs_server *server, bs_now now);

/* The worker of that shard has ended, or there is a new one. */
void bs_reserves_peer_changed(bs_server *server, uint32_t shard, bs_now now);

#endif
