/* Moves of jobs to tubes of other workers.
 *
 * The worker that has the job sends the other one a put of a copy, with a new id, through a session of its own, the
 * *mover*: one for each worker that has got a job. Meanwhile the mover holds the job, so that nobody else gets it. When
 * the copy is on the other worker's disk, the job ends; if the copy is refused, the job is as it was before. The client
 * is parked until then.
 *
 * A crash leaves the job, the copy or both; the job is ready if it was compacted meanwhile. Only without any syncs
 * (-F) a power cut may leave neither. If the other worker goes down before it has answered, the client gets an error,
 * and the job is as before, although there may be a copy.
 */
#ifndef BS_REMOTE_MOVES_H
#define BS_REMOTE_MOVES_H

#include "queue/job_lifetime.h"
#include "server/server_state.h"

/* Begins to move a job, whose body is in memory, and parks the session, or replies with an error. */
void bs_remote_move_begin(bs_server *server, bs_session *session, bs_job *job, const bs_job_target *to, bs_now now);

/* The reply of that worker to the first put without one, without CR LF. */
void bs_remote_move_answered(bs_server *server, uint32_t shard, const char *reply);

/* That worker has gone down: its moves fail. */
void bs_remote_moves_fail(bs_server *server, uint32_t shard);

/* That worker has ended the mover's proxy, for want of memory: its moves fail, and later ones get another proxy. */
void bs_remote_moves_restart(bs_server *server, uint32_t shard);

/* Returns whether a move must wait until the other worker has taken earlier ones; then the session is stalled. */
bool bs_remote_move_stalls(bs_server *server, bs_session *session, const bs_command *command);

/* Ends the moves whose copies are on disk, also those within this shard (job_lifetime.h), and replies to their clients. */
void bs_moves_run(bs_server *server, bs_now now);

static inline bool bs_moves_due(const bs_server *server)
{
    return server->answered_moves > 0 || bs_queue_move_due(&server->queue);
}

void bs_remote_moves_free(bs_server *server);

#endif
