/* What a reserve over several shards is made of: looking at the best job, claiming it, waiting for one.
 *
 * A claim is a reservation that the client does not know of yet. It is told (`take`), or the job is put back as it was:
 * no counter moves, and the job is where it would be if nothing had happened.
 *   C1  A session waits for at most one token, and has claimed at most one job; it is parked while it does, at home,
 *       or executes nothing because nothing is fed to it, as a proxy.
 */
#ifndef BS_CLAIMS_H
#define BS_CLAIMS_H

#include "server.h"

void bs_claim_head(const bs_session *session, bs_head *head, bs_now now);

/* These are core.h's functions of the same name. */
int bs_claim(bs_server *server, bs_session *session, uint32_t pri, uint64_t id, bs_now now);
int bs_claim_wait(bs_server *server, bs_session *session, uint64_t token, int64_t until, bs_now now);
int bs_claim_take(bs_server *server, bs_session *session, uint64_t token);
int bs_claim_cancel(bs_server *server, bs_session *session, uint64_t token, bs_now now);

/* The queue has served a session that waits with a token. */
void bs_claim_served(bs_server *server, bs_session *session, bs_served how, bs_job *job);

/* Before a session ends: puts back what it has claimed. */
void bs_claim_end(bs_server *server, bs_session *session, bs_now now);

#endif
