/* The links to other workers: executes frames that arrive, and sends the outboxes.
 *
 * Per command only the core is involved: the round that reads a FEED executes it in the proxy, and the round that reads
 * an OUTPUT relays it to the client. What results leaves at the end of the same round.
 *   L4  Frames of one worker take effect in order. Frames of Python become upcalls, and later frames of the core wait
 *       (`awaits_python`) until Python has handled them and calls bs_core_resume_peers.
 *   L5  In each round frames leave before replies to clients, because a client that reads a reply may ask another
 *       worker, which must have the frame by then. Outboxes with the end of a wait (WAITED) leave first: another outbox
 *       of the round may cause a second claim for the same client, and the first must arrive first.
 */
#ifndef BS_LINKS_H
#define BS_LINKS_H

#include "runtime/core_state.h"

/* Tags the sockets to other workers in the epoll set: above all descriptors, below all session ids. */
#define BS_PEER_TAG (UINT64_C(1) << 31)

void bs_links_init(bs_core *core);
void bs_links_free(bs_core *core);

/* Reads a limited number of messages from a socket that is readable or has ended; then the rest of its ring, too. */
void bs_link_ready(bs_core *core, uint32_t shard, bs_now now);

/* Reads a limited number of messages from the rings of all workers (L7). */
void bs_links_read_rings(bs_core *core, bs_now now);

bool bs_links_have_messages(const bs_core *core);

/* Announces that this worker waits for descriptors. Returns false if it must not, because it can read or write a ring.
 */
bool bs_links_sleep(bs_core *core);
void bs_links_awake(bs_core *core);

/* Sends the outboxes as far as the sockets accept them. */
void bs_links_send(bs_core *core);

/* --- proxies.c --- */

/* Finds or opens the proxy for a session of worker `shard`. NULL: it has failed, and its home worker gets ENDED; frames
 * for it are ignored until CLOSE. */
bs_session *bs_proxy_for(bs_core *core, uint32_t shard, uint64_t home);

void bs_proxy_close(bs_core *core, uint32_t shard, uint64_t home, bs_now now);

/* Moves the output of a proxy into the outbox; ends a proxy that has failed. */
void bs_proxy_flush(bs_core *core, bs_session *session, bs_now now);

#endif
