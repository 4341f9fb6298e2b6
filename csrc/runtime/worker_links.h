/* The other workers of a running core: what comes from them is carried out, what is for them leaves.
 *
 * Per command only the core has a part: a FEED is executed by the proxy it is for and an OUTPUT passed on to its client
 * in the round that reads them, and what comes of that leaves at the end of the same round.
 *   L4  What one worker sends takes effect in the order of sending. Its frames are carried out as they come; those that
 *       are Python's go there by upcall, and from then on the core's own wait behind them (`held`) until Python has done
 *       what they say and calls bs_core_resume_peers.
 *   L5  What is for other workers leaves a round before what is for clients: who reads a reply may ask another worker
 *       about it, which should have heard by then. And first of all leaves that a claim was made: the same round may ask
 *       another worker for what makes a second claim for the same client, and of two the first is to be heard of first.
 */
#ifndef BS_LINKS_H
#define BS_LINKS_H

#include "runtime/core_state.h"

/* Tags the sockets to other workers in the epoll set: above all descriptors, below all sessions. */
#define BS_PEER_TAG (UINT64_C(1) << 31)

/* Without other workers. */
void bs_links_init(bs_core *core);
void bs_links_free(bs_core *core);

/* The socket has something to read: takes so much of it that nobody else is kept waiting. */
void bs_link_ready(bs_core *core, uint32_t shard, bs_now now);

/* Sends what there is for other workers, as far as they take it now. */
void bs_links_send(bs_core *core);

/* Says what a proxy has to say and may; ends one that has failed. */
void bs_proxy_flush(bs_core *core, bs_session *session, bs_now now);

#endif
