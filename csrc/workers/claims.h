/* What a reserve over several shards is made of: looking at the best job, claiming it, waiting for one.
 *
 * A claim is a reservation that the client does not know of yet. It is told (`take`), or the job is put back as it was:
 * no counter moves, and the job is where it would be if nothing had happened. Who could tell the difference meanwhile waits
 * (pending_claims.h).
 *   C1  A session waits for at most one token, and has claimed at most one job; it is parked while it does, at home,
 *       or executes nothing because nothing is fed to it, as a proxy.
 */
#ifndef BS_CLAIMS_H
#define BS_CLAIMS_H

#include "server/server_state.h"

/* These are the functions of api/server.h of the same name. */
int bs_claim_head(bs_server *server, bs_session *session, bs_head *head, bool decided, bs_now now);
int bs_claim(bs_server *server, bs_session *session, uint32_t pri, bool decided, bs_now now);
int bs_claim_wait(bs_server *server, bs_session *session, uint64_t token, int64_t until, bs_now now);
int bs_claim_take(bs_server *server, bs_session *session, uint64_t token, bs_now now);
int bs_claim_cancel(bs_server *server, bs_session *session, uint64_t token, bs_now now);

/* Might a claimed job be put back into a tube that the session watches? Then it gets BS_UPCALL_CLAIMS_DECIDED later. */
bool bs_claims_undecided(bs_server *server, bs_session *session);

/* The queue has served a session that waits with a token. */
void bs_claim_served(bs_server *server, bs_session *session, bs_served how, bs_job *job);

/* Puts back what has been claimed and not decided for too long; its worker is slow from then on. */
void bs_claims_tick(bs_server *server, bs_now now);

/* That worker has said something: its sessions are served again. */
void bs_claims_peer_responds(bs_server *server, uint32_t peer, bs_now now);

/* Before a session ends: puts back what it has claimed. */
void bs_claim_abandon(bs_server *server, bs_session *session, bs_now now);

#endif
