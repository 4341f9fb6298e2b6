/* Claims of which nobody knows yet whether they are taken, and who waits until that is known.
 *
 * While a session has claimed a job and its client is not told, nobody can say whether that job is reserved or ready. It
 * counts as reserved, and most likely will be. But who could tell the difference if it is put back - by asking for the
 * job, for the tube's ready jobs, or for any job of the tube - waits for the answer, which is one message away.
 *   D1  Who waits does so for the claims of that moment, not for later ones: it ends, however many are made.
 */
#ifndef BS_PENDING_CLAIMS_H
#define BS_PENDING_CLAIMS_H

#include "protocol/parser.h"
#include "server/server_state.h"

/* The session has just claimed this job, of a tube that it watches. */
void bs_pending_claims_add(bs_server *server, bs_session *session, const bs_job *job);

/* It is taken or put back now: its tube. Those who asked meanwhile go on; those who wait for a job of the tube can be
 * served. */
bs_tube *bs_pending_claims_remove(bs_server *server, bs_session *session);

/* Can this command not be answered for certain? Then the session is stalled. */
bool bs_pending_claims_stall(bs_server *server, bs_session *session, const bs_command *command);

/* Has the session claims of others in a tube that it watches? */
bool bs_pending_claims_watched(const bs_session *session);

/* Sends the upcall BS_UPCALL_CLAIMS_DECIDED for this session once the claims of now are decided. */
void bs_pending_claims_wait(bs_server *server, bs_session *session);

/* Claims that are not decided after this long are put back: whoever should decide does not answer. */
#define BS_CLAIM_LIMIT_NS INT64_C(200000000)

/* When the next one is, INT64_MAX without any. */
int64_t bs_pending_claims_next(const bs_server *server);

/* The session whose claim is due, or NULL. */
bs_session *bs_pending_claims_due(const bs_server *server, bs_now now);

void bs_pending_claims_free(bs_pending_claims *pending);

#endif
