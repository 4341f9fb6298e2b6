/* For how long a client is waited for: one that says nothing, one that does not finish what it has begun to say, and
 * one that takes no replies. Whoever exceeds its time is closed as if it had left.
 *
 *   P1  While there is a timeout, each session but proxies is in the heap, at a time no later than when it may have to
 *       be given up. The time may be earlier (a client that goes on moves nothing), so each is looked at once in a
 *       while; only a session whose jobs at another shard are asked for is out of the heap meanwhile.
 *
 * Silence counts from the last byte in either direction. It is excused while the session waits in a reserve, holds a
 * job at any shard, or is owed a reply; after that it has its whole time once more.
 */
#ifndef BS_PATIENCE_H
#define BS_PATIENCE_H

#include "runtime/loop.h"

/* A session is new. */
void bs_patience_begin(bs_server *server, bs_session *session, bs_now now);

/* Bytes of it have come and been looked at. */
void bs_patience_heard(bs_server *server, bs_session *session, bs_now now);

/* Its socket takes no more bytes. */
void bs_patience_stuck(bs_server *server, bs_session *session, bs_now now);

/* What was asked of another shard about it has been said: it is looked at in the next round. */
void bs_patience_again(bs_server *server, bs_session *session);

/* It ends. */
void bs_patience_forget(bs_server *server, bs_session *session);

/* The timeouts have changed. */
void bs_patience_changed(bs_server *server, bs_now now);

/* Ends those that have exceeded their time; the next time, INT64_MAX without any. */
int64_t bs_patience_tick(bs_core *core, bs_now now);

#endif
