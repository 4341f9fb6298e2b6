/* The steps of a multi-shard reserve: reading the best job, claiming it, waiting for one.
 *
 * A claim is a reservation that the client does not know of yet. It is taken, or the job is put back as it was: no
 * counter has changed, and the job is where it would be without the claim. While a claim is pending, its job counts as
 * reserved. Commands that could observe that it is put back - for the job, for the tube's ready jobs, or for any job of
 * the tube - wait for the decision, which is one message away.
 *   C1  A session waits for at most one token, and has claimed at most one job. Meanwhile a session at home is parked,
 *       and a proxy gets no input.
 *   D1  A command waits for the claims that were pending at its arrival, not for later ones, so the wait ends.
 */
#ifndef BS_CLAIMS_H
#define BS_CLAIMS_H

#include "protocol/parser.h"
#include "server/server_state.h"

/* Claims pending for longer are put back, because the worker that decides does not respond. */
#define BS_CLAIM_LIMIT_NS INT64_C(200000000)

/* Claims the best job now or as soon as there is one. Then home gets WAITED with the token; for a session at home,
 * remote->waited is set and the session is in `reserving`. */
void bs_claim_wait(bs_server *server, bs_session *session, uint64_t token, int64_t until, bs_now now);

/* Replies with the job that was claimed for `token`, or a batch. False: the job has timed out meanwhile. */
bool bs_claim_take(bs_server *server, bs_session *session, uint64_t token, bs_now now);

/* Stops that wait, or a whole reserve of a proxy, and puts a claimed job back as it was. False: there was nothing to
 * stop. */
bool bs_claim_cancel(bs_server *server, bs_session *session, uint64_t token, bs_now now);

/* Returns whether the session watches a tube with a pending claim; then it is in `reserving` after the decision. */
bool bs_claims_undecided(bs_server *server, bs_session *session);

/* Returns whether the command must wait for a pending claim; then the session is stalled. */
bool bs_pending_claims_stall(bs_server *server, bs_session *session, const bs_command *command);

/* The queue has served a session that waits with a token. */
void bs_claim_served(bs_server *server, bs_session *session, bs_served how, bs_job *job);

/* Puts back claims that are pending for too long; their workers are unresponsive from then on. */
void bs_claims_tick(bs_server *server, bs_now now);

/* Returns when the next claim is pending for too long, INT64_MAX without any. */
int64_t bs_pending_claims_next(const bs_server *server);

/* That worker has sent something: serves its sessions again. */
void bs_claims_peer_responds(bs_server *server, uint32_t peer, bs_now now);

/* Puts back the claim of a session that ends. */
void bs_claim_abandon(bs_server *server, bs_session *session, bs_now now);

void bs_pending_claims_free(bs_pending_claims *pending);

#endif
