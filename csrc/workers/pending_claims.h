/* Claims that are not decided, and the commands that wait for the decision.
 *
 * While a claim is pending, its job may turn out to be reserved or ready. It counts as reserved, and most likely will
 * be. Commands that could observe that it is put back - for the job, for the tube's ready jobs, or for any job of the
 * tube - wait for the decision, which is one message away.
 *   D1  A command waits for the claims that were pending at its arrival, not for later ones, so the wait ends.
 */
#ifndef BS_PENDING_CLAIMS_H
#define BS_PENDING_CLAIMS_H

#include "protocol/parser.h"
#include "server/server_state.h"

/* The session has claimed this job of a tube that it watches. */
void bs_pending_claims_add(bs_server *server, bs_session *session, const bs_job *job);

/* The claim is taken or put back: returns its tube. Commands that waited continue; the caller serves the tube's
 * waiters. */
bs_tube *bs_pending_claims_remove(bs_server *server, bs_session *session);

/* Must the command wait for a claim? Then the session is stalled. */
bool bs_pending_claims_stall(bs_server *server, bs_session *session, const bs_command *command);

/* Has a tube that the session watches pending claims? */
bool bs_pending_claims_watched(const bs_session *session);

/* Sends BS_UPCALL_CLAIMS_DECIDED for this session after the decision of all pending claims. */
void bs_pending_claims_wait(bs_server *server, bs_session *session);

/* Claims pending for longer are put back, because the worker that decides does not respond. */
#define BS_CLAIM_LIMIT_NS INT64_C(200000000)

/* When the next one is due, INT64_MAX without any. */
int64_t bs_pending_claims_next(const bs_server *server);

/* Returns the session whose claim is due, or NULL. */
bs_session *bs_pending_claims_due(const bs_server *server, bs_now now);

void bs_pending_claims_free(bs_pending_claims *pending);

#endif
