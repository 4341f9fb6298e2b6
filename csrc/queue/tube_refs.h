/* Tube references: counts of the sessions that use and watch a tube, which keep it.
 *
 * A tube of another shard is *remote*: it has a name and the sums of its local users and watchers, which its worker
 * receives as COUNT frames. So a session has all its tubes locally, even if their jobs are elsewhere.
 */
#ifndef BS_TUBE_REFS_H
#define BS_TUBE_REFS_H

#include "queue/queue_state.h"

/* Finds or creates a tube; NULL without memory. Free it with bs_refs_free_unused if it is not used. */
bs_tube *bs_refs_tube(bs_queue *queue, const char *name, size_t length);

/* Returns how many unrouted connections use and watch this tube. The parent has them; each is counted here until the
 * worker that adopts it has sent its census and counts (barrier.h). */
uint64_t bs_refs_unrouted(const bs_queue *queue, const bs_tube *tube);

/* Frees the tube if nothing refers to it. */
void bs_refs_free_unused(bs_queue *queue, bs_tube *tube);

/* Keeps the tube without counting a session, here and at its worker. */
void bs_refs_pin(bs_queue *queue, bs_tube *tube);
void bs_refs_unpin(bs_queue *queue, bs_tube *tube);

/* Releases the tubes of a session that ends. */
void bs_refs_end(bs_queue *queue, const bs_session *session);

/* Opens a session that uses `default` and watches it, unless it has `moved` here. NULL without memory. */
bs_session *bs_refs_open_session(bs_queue *queue, bool moved);

/* Opens a session that uses and watches nothing and is not counted. */
bs_session *bs_refs_open_proxy(bs_queue *queue);

/* Opens a mover, which holds jobs that move to another tube (job_lifetime.h, remote_moves.h). */
bs_session *bs_refs_open_mover(bs_queue *queue);

/* 0 or -ENOMEM. The name must be valid. */
int bs_refs_use(bs_queue *queue, bs_session *session, const char *name, size_t length);
int bs_refs_watch(bs_queue *queue, bs_session *session, const char *name, size_t length);

/* A proxy uses no tube any more. */
void bs_refs_use_none(bs_queue *queue, bs_session *session);

/* 0, or -EBUSY for the last watched tube. */
int bs_refs_ignore(bs_queue *queue, bs_session *session, const char *name, size_t length);

/* Replaces the counts of another worker for a tube of this shard; `number` is the tube's number there. 0 or -ENOMEM. */
int bs_refs_set_peer_counts(bs_queue *queue, const char *name, size_t length, bs_peer_refs refs, uint64_t number);

/* Drops all counts of a worker that is down. */
void bs_refs_drop_peer(bs_queue *queue, uint32_t peer);

/* Takes one remote tube whose counts have changed; false without any. The tube is valid until the next call.
 * `unneeded`: the counts were zero in between, and the next call takes the present ones. */
bool bs_refs_take_changed(bs_queue *queue, bs_tube **tube, bool *unneeded);

/* The counts are sent; frees a tube that is not needed any more. */
void bs_refs_counts_sent(bs_queue *queue, bs_tube *tube);

/* Marks all counts for this shard as not sent. */
void bs_refs_resend_all(bs_queue *queue, uint32_t shard);

bool bs_refs_watches(const bs_session *session, const bs_tube *tube);

#endif
