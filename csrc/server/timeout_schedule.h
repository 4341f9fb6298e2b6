/* When clients last sent and took bytes, and when the timeouts of each have to be checked (client_timeouts.h).
 *
 *   P1  While there is a timeout, each session but proxies is in the heap, at a time no later than its earliest
 *       timeout. The time may be earlier, because a client's activity moves nothing. Only a session whose jobs at
 *       another shard are being counted is out of the heap meanwhile.
 */
#ifndef BS_TIMEOUT_SCHEDULE_H
#define BS_TIMEOUT_SCHEDULE_H

#include "server/server_state.h"

/* A session is new. */
void bs_timeouts_begin(bs_server *server, bs_session *session, bs_now now);

/* The session has received bytes, which are executed or buffered. */
void bs_timeouts_received(bs_server *server, bs_session *session, bs_now now);

/* Its socket accepts no more bytes. */
void bs_timeouts_blocked(bs_server *server, bs_session *session, bs_now now);

/* Another shard has replied to a question about the session: it is checked in the next round. */
void bs_timeouts_recheck(bs_server *server, bs_session *session);

void bs_timeouts_remove(bs_server *server, bs_session *session);

/* The limits have changed. */
void bs_timeouts_changed(bs_server *server, bs_now now);

/* Puts the session into the heap at its earliest timeout. */
void bs_timeouts_schedule(bs_server *server, bs_session *session);

/* Has part of a line or of a body arrived, or are whole commands waiting? */
bool bs_timeouts_input_begun(const bs_session *session);

/* mono; idle since then. */
int64_t bs_timeouts_silent_since(const bs_session *session);

#endif
