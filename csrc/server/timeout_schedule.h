/* Times at which clients last sent and received bytes, and at which their timeouts are checked (client_timeouts.c).
 *
 *   P1  While there is a timeout, each session except proxies is in the heap, at a time no later than its earliest
 *       timeout. The time may be earlier, because activity does not move it. A session leaves the heap only while a
 *       query for its jobs at another shard is outstanding (bs_remote_query_holds).
 */
#ifndef BS_TIMEOUT_SCHEDULE_H
#define BS_TIMEOUT_SCHEDULE_H

#include "server/server_state.h"

void bs_timeouts_begin(bs_server *server, bs_session *session, bs_now now);

/* The session has received bytes. */
void bs_timeouts_received(bs_server *server, bs_session *session, bs_now now);

/* The session's socket accepts no more bytes. */
void bs_timeouts_blocked(bs_server *server, bs_session *session, bs_now now);

void bs_timeouts_remove(bs_server *server, bs_session *session);

/* The limits have changed. */
void bs_timeouts_changed(bs_server *server, bs_now now);

/* Adds the session to the heap at its earliest timeout, if there is one. */
void bs_timeouts_schedule(bs_server *server, bs_session *session);

/* Returns whether part of a line or of a body has arrived, or whole commands wait. */
bool bs_timeouts_input_begun(const bs_session *session);

/* Returns the time of the last byte in either direction (mono). */
int64_t bs_timeouts_idle_since(const bs_session *session);

#endif
