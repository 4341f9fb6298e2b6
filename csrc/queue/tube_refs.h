/* Who uses and watches which tube, and how long a tube lives for it.
 *
 * Also for tubes of other shards: such a tube is *elsewhere*, known here only by its name and by who uses and watches it
 * here, which its own worker is told in sums, a tube at a time. So a client's view of its tubes is all in one place,
 * wherever they are.
 */
#ifndef BS_TUBE_REFS_H
#define BS_TUBE_REFS_H

#include "queue/queue_state.h"

/* The tube of this name, made if need be; NULL when memory ran out. Whoever does not keep it lets it go. */
bs_tube *bs_refs_tube(bs_queue *queue, const char *name, size_t length);

/* Connections that no worker has yet are with the parent; so many of them use and watch this tube. Each is counted until
 * the worker that gets it has told of it, along with its counts (barrier.h). */
uint64_t bs_refs_unrouted(const bs_queue *queue, const bs_tube *tube);

/* Frees the tube if nobody needs it any more. */
void bs_refs_free_unused(bs_queue *queue, bs_tube *tube);

/* Nobody is counted, and the tube stays until it is released; its worker is told. */
void bs_refs_hold(bs_queue *queue, bs_tube *tube);
void bs_refs_unhold(bs_queue *queue, bs_tube *tube);

/* A session that ends uses and watches nothing any more. */
void bs_refs_end(bs_queue *queue, const bs_session *session);

/* Uses `default`. A new connection watches it, too; one that has `moved` here watches nothing yet. NULL when memory ran
 * out. */
bs_session *bs_refs_open_session(bs_queue *queue, bool moved);

/* Uses and watches nothing, and counts nowhere. */
bs_session *bs_refs_open_proxy(bs_queue *queue);

/* These two: 0 or -ENOMEM. The name must be valid. */
int bs_refs_use(bs_queue *queue, bs_session *session, const char *name, size_t length);
int bs_refs_watch(bs_queue *queue, bs_session *session, const char *name, size_t length);

/* A proxy uses nothing any more. */
void bs_refs_use_none(bs_queue *queue, bs_session *session);

/* 0, or -EBUSY when it is the last one watched. */
int bs_refs_ignore(bs_queue *queue, bs_session *session, const char *name, size_t length);

/* What another worker says of a tube of this shard, which has this number there: it replaces what it has said before.
 * 0 or -ENOMEM. */
int bs_refs_set_peer_counts(bs_queue *queue, const char *name, size_t length, bs_peer_refs share, uint64_t number);

/* All sessions of that worker are no more. */
void bs_refs_drop_peer(bs_queue *queue, uint32_t peer);

/* Takes one tube elsewhere whose counts have changed: false when there is none. The name is good until the next call.
 * `unneeded`: they were nothing before they became what they are, which the next call takes. */
bool bs_refs_take_changed(bs_queue *queue, bs_tube **tube, bool *unneeded);

/* Forgets such a tube if nobody here needs it any more. */
void bs_refs_counts_sent(bs_queue *queue, bs_tube *tube);

/* Everything used or watched of that shard has to be told again. */
void bs_refs_resend_all(bs_queue *queue, uint32_t shard);

bool bs_refs_watches(const bs_session *session, const bs_tube *tube);

#endif
