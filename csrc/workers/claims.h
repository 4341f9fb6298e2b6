/* The steps of a multi-shard reserve: reading the best job, claiming it, waiting for one.
 *
 * A claim is a reservation that the client does not know of yet. It is taken, or the job is put back as it was: no
 * counter has changed, and the job is where it would be without the claim. Commands that could observe the difference
 * wait (pending_claims.h).
 *   C1  A session waits for at most one token, and has claimed at most one job. Meanwhile a session at home is parked,
 *       and a proxy gets no input.
 */
#ifndef BS_CLAIMS_H
#define BS_CLAIMS_H

#include "server/server_state.h"

/* The functions of api/server.h with these names. */
int bs_claim_head(bs_server *server, bs_session *session, bs_head *head, bool decided, bs_now now);
int bs_claim(bs_server *server, bs_session *session, uint32_t pri, bool decided, bs_now now);
int bs_claim_wait(bs_server *server, bs_session *session, uint64_t token, int64_t until, bs_now now);
int bs_claim_take(bs_server *server, bs_session *session, uint64_t token, bs_now now);
int bs_claim_cancel(bs_server *server, bs_session *session, uint64_t token, bs_now now);

/* Does a pending claim affect a tube that the session watches? Then BS_UPCALL_CLAIMS_DECIDED follows. */
bool bs_claims_undecided(bs_server *server, bs_session *session);

/* The queue has served a session that waits with a token. */
void bs_claim_served(bs_server *server, bs_session *session, bs_served how, bs_job *job);

/* Puts back claims that are pending for too long; their workers are unresponsive from then on. */
void bs_claims_tick(bs_server *server, bs_now now);

/* That worker has sent something: serves its sessions again. */
void bs_claims_peer_responds(bs_server *server, uint32_t peer, bs_now now);

/* Puts back the claim of a session that ends. */
void bs_claim_abandon(bs_server *server, bs_session *session, bs_now now);

#endif
