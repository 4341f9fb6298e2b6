/* Commands that another worker must execute: which ones, and their way there.
 *
 * The session stays here. At the other worker a *proxy* stands for it: a session without a socket, which is fed lines
 * as a client would send them. Its output is relayed to the client. Replies are in the order of the commands:
 *   R1  A session waits for the replies of one shard at a time. A command for another shard, or for this one, is
 *       `stalled` until they have arrived.
 *   R2  All frames about a session to one shard go through one outbox, in order. The core sends frames as it executes
 *       commands and reserves; Python sends those of its decisions (a search, a migration). Python may send frames
 *       about a session only from the upcall that parks it until it has its reply, and sends all of them before it
 *       gives that reply or has another shard give it. So frames of the core come before those, or after. The core
 *       sends CLOSE last: Python cannot send frames about a session that has ended (bs_core_send). A session that
 *       reserves has no other running command, so the only possible OUTPUT is the reply to the reserve: instead of
 *       LOST, or after CANCELLED, because it may wait for a sync.
 *   R3  Counts of users and watchers (COUNT) precede any later line, so that a command at the other worker finds the
 *       session that sends it counted; and they follow a connection that migrates there.
 *
 * A proxy has no used tube. Lines for proxies only start with a byte that starts no command:
 *   0x01 TUBE ID LINE   executes LINE as if TUBE were used; a put gets this id, allocated when its line arrived
 *   0x02 +TUBE, -TUBE   watches or ignores, without a reply
 *   0x03 REPLY          replies REPLY: keeps a local reply in order with the others
 *   0x04 +TUBE          replies 1 if the tube exists, else 0
 *   0x04 #              replies the number of jobs it holds
 *   0x05 OPTIONS        gives its next put these options (put_options.h), without a reply
 *   0x06 OPTIONS        the same, of a job that moves here (remote_moves.h)
 *
 * The lines with 0x04 are queries of this worker, sent when no other reply is outstanding. Clients do not see their replies.
 */
#ifndef BS_REMOTE_COMMANDS_H
#define BS_REMOTE_COMMANDS_H

#include "server/remote_state.h"

enum {
    BS_PROXY_TUBE = 1,
    BS_PROXY_WATCH = 2,
    BS_PROXY_ECHO = 3,
    BS_PROXY_QUERY = 4,
    BS_PROXY_WITH = 5,
    BS_PROXY_MOVED = 6,
    BS_PROXY_LINE_MAX = 512
};

/* The next outstanding reply is complete: counts its latency. Not for a session that is parked. */
void bs_remote_replied(bs_server *server, bs_session *session);

typedef enum {
    BS_ROUTE_LOCAL,  /* execute it here */
    BS_ROUTE_SENT,   /* sent, or parked for Python */
    BS_ROUTE_STALLED /* it must wait, and the session is stalled */
} bs_routing;

/* Routes a command of a session that is no proxy, if there are several workers. */
bs_routing bs_remote_route(bs_server *server, bs_session *session, const bs_command *command, const char *line,
                           size_t length);

/* Returns the worker that has this job: this one if no worker can have it, BS_OWNER_UNKNOWN if any may have it. */
int bs_remote_owner_of(bs_server *server, uint64_t id);

/* Sends a frame of a reserve or wait to worker `shard`, or a response to the home worker of a proxy. */
void bs_remote_send_step(bs_server *server, const bs_session *session, uint32_t shard, uint32_t kind,
                         bs_reserve_step step);
void bs_remote_respond_step(bs_server *server, const bs_session *proxy, uint32_t kind, bs_reserve_step step);

/* Returns whether a reply can be given now; if not, the session is stalled. For lines that are no commands. */
bool bs_remote_may_reply(bs_session *session);

/* The reply that a parked session waits for comes from `shard`. */
void bs_remote_expect(bs_session *session, uint32_t shard);

/* Queries how many jobs a session's proxy holds; the reply updates holding_shards or holds_remote_job. False: no query
 * is possible now. */
bool bs_remote_query_holds(bs_server *server, bs_session *session, uint32_t shard);

/* The reply to a query: a number. */
void bs_remote_query_answered(bs_server *server, bs_session *session, uint32_t shard, const char *line);

/* Relays output of the session's proxy to the client (reply_relay.c). */
void bs_relay_output(bs_server *server, bs_session *session, uint32_t shard, const char *bytes, size_t length);

/* Sends a put with its body and frees the job. -ENOMEM: the caller still owns the job. */
int bs_remote_put(bs_server *server, bs_session *session, bs_job *job);

/* Adds a reply after all outstanding ones. */
void bs_remote_reply_in_order(bs_server *server, bs_session *session, const char *text);

/* Adds a reply after which every client must find this tube: sends it through the tube's worker if that has no counts.
 */
void bs_remote_reply_after_count(bs_server *server, bs_session *session, const bs_tube *tube, const char *text);

/* The session watches or ignores a remote tube. */
void bs_remote_watch(bs_server *server, bs_session *session, const bs_tube *tube, bool watched);

/* Sends the watch list for that shard, unless it has it. */
void bs_remote_send_watches(bs_server *server, bs_session *session, uint32_t shard);

/* Forgets all outstanding replies of a session, whose proxy there has ended. */
void bs_remote_forget_outstanding(bs_server *server, const bs_session *session, uint32_t shard);

/* Another worker is BS_PEER_DOWN, _UP or _BUSY now. */
void bs_remote_set_peer_state(bs_server *server, uint32_t shard, int state);

/* Closes the proxies of a session that ends. */
void bs_remote_end(bs_server *server, const bs_session *session);

#endif
