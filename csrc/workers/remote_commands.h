/* Commands that another worker has to execute: which ones, and how they get there.
 *
 * The session stays here. At the other worker a *proxy* stands for it, a session without a socket that is fed lines as
 * a client would send them, and whose replies are passed on to the client. Replies come in the order of the commands:
 *   R1  A session waits for the replies of one shard at a time; a command for another one, or for nobody else, stays
 *       unread (`stalled`) until they are there.
 *   R2  What is said of a session to a shard goes into one outbox when it is said, and arrives in that order. Two
 *       speak: the core as it executes commands, and Python of what it decides (a reserve, a search, a move). Python
 *       has something to say of a session only from the upcall that parks it until it has its reply, and says all of it
 *       before it gives that reply or has another shard give it. So the core's lines come before, as what is watched
 *       does, or after. One thing can come late, the CANCEL of a wait that ends in a reply at the same moment; Python
 *       still says it before anything of the session's next reserve, and its token means nothing any more. CLOSE is
 *       the core's, and the last: of a session that has ended Python can say nothing (bs_core_send).
 *       In the other direction the core says OUTPUT and ENDED, Python the answers to what it was asked. A session that
 *       Python is asked about has no command under way, so there is no OUTPUT to come but the reply to what it asks:
 *       said instead of LOST, and maybe after CANCELLED, as it may have to wait for the disk.
 *   R3  Who uses and watches a tube (COUNT) is told before any line that is written later, so that what a command finds
 *       at the other worker includes the session that sends it; and after the connection that moves there has left.
 *
 * A proxy has no tube of its own. Lines that only proxies understand begin with a byte no command begins with:
 *   0x01 TUBE ID LINE   as if that tube were used; a put gets this id, which was taken when its line was read here
 *   0x02 +TUBE, -TUBE   watch, ignore, without a reply
 *   0x03 REPLY          says REPLY: keeps an answer that was found here in its place among the others
 *   0x04 +TUBE          says 1 if there is such a tube, else 0
 *   0x04 #              says how many jobs it holds
 *
 * The last two are asked for this worker's own sake (`aside`), when no other reply is to come. Their replies end in the
 * route: no client sees them, and they do not make a session move.
 */
#ifndef BS_REMOTE_COMMANDS_H
#define BS_REMOTE_COMMANDS_H

#include "server/remote_state.h"

enum {
    BS_PROXY_TUBE = 1,
    BS_PROXY_WATCH = 2,
    BS_PROXY_ECHO = 3,
    BS_PROXY_QUERY = 4,
    BS_PROXY_LINE_MAX = 512
};

/* The next of them is complete, whoever it is from: what it took is counted. Not for a session that is parked. */
void bs_remote_replied(bs_server *server, bs_session *session);

typedef enum {
    BS_ROUTE_LOCAL,  /* to be executed here */
    BS_ROUTE_SENT,  /* on its way */
    BS_ROUTE_STALLED  /* not now: the session is stalled, the line has not been taken */
} bs_routing;

/* Where a command goes, for a session that is no proxy in a server of several workers. */
bs_routing bs_remote_route(bs_server *server, bs_session *session, const bs_command *command, const char *line,
                           size_t length, bs_now now);

/* May a reply be given now? If not, the session is stalled. For what is answered before it is known as a command. */
bool bs_remote_may_reply(bs_session *session);

/* Asks a session's proxy how many jobs it holds; the answer is `held` or `holds_elsewhere`. False: not now. */
bool bs_remote_query_holds(bs_server *server, bs_session *session, uint32_t shard);

/* The reply to what was asked aside: a number. */
void bs_remote_query_answered(bs_server *server, bs_session *session, uint32_t shard, const char *line);

/* Sends a put whose body is complete; frees the job. -ENOMEM: it is still the caller's. */
int bs_remote_put(bs_server *server, bs_session *session, bs_job *job);

/* A reply that is found after its line was taken: in its place, whatever is still to come. */
void bs_remote_reply_in_order(bs_server *server, bs_session *session, const char *text);

/* A reply after which everybody is to find this tube: if its worker does not know of it yet, by way of that worker. */
void bs_remote_reply_after_count(bs_server *server, bs_session *session, const bs_tube *tube, const char *text);

/* What is watched of that tube's shard has changed. */
void bs_remote_watch(bs_server *server, bs_session *session, const bs_tube *tube, bool watched);

/* What is watched of that shard is known there from now on. */
void bs_remote_send_watches(bs_server *server, bs_session *session, uint32_t shard);

/* Another worker has become BS_PEER_DOWN, _UP or _BUSY. */
void bs_remote_set_peer_state(bs_server *server, uint32_t shard, int state);

/* The session ends: so do its proxies. */
void bs_remote_end(bs_server *server, const bs_session *session);

#endif
