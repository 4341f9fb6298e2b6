/* Waits for a job (queue/job_waits.h) in which other workers take part: the job is there, or the session holds jobs
 * there, which DEADLINE_SOON depends on.
 *
 * The home worker asks them (AWAIT). Each responds at once, and again when something has happened (AWAITED); the end of
 * a job only after its entry is on disk. The home worker has the timeout. It replies with the first outcome, in this
 * order if it knows several: the job's end, DEADLINE_SOON, TIMED_OUT. Then it ends the waits of the others (CANCEL). If
 * the worker that has the job goes down, the session waits until there is a new one, which is asked again.
 */
#ifndef BS_SHARD_WAITS_H
#define BS_SHARD_WAITS_H

#include "server/remote_state.h"

/* The argument of AWAITED: a bs_served of the job, or PENDING, and whether a job held there times out within a second.
 */
enum { BS_WAIT_PENDING = 15, BS_WAIT_HOW = 15, BS_WAIT_SOON = 16 };

bool bs_shard_wait_concerns_others(bs_server *server, const bs_session *session, uint64_t job);

/* The session is parked until its reply. */
void bs_shard_wait_begin(bs_server *server, bs_session *session, uint64_t job, int64_t until, bs_now now);

/* The wait here of a session with a bs_shard_wait, or of its proxy, has ended. With an end of the job the session still
 * waits. */
void bs_shard_wait_served(bs_server *server, bs_session *session, bs_served how, bs_now now);

/* Executes AWAIT for a proxy, or AWAITED for the session at home. 0 or -EBADMSG. */
int bs_shard_wait_frame(bs_server *server, bs_session *session, uint32_t shard, const bs_frame *frame, bs_now now);

/* The worker of that shard has ended, or there is a new one. */
void bs_shard_waits_peer_changed(bs_server *server, uint32_t shard);

#endif
