/* Relays the output of proxies to clients at home: finds the end of each reply, and acts on it.
 *
 * Bytes arrive in any pieces. A client gets the first line of a reply only when it is complete, so that a reply whose
 * worker goes down can be replaced.
 */
#ifndef BS_REPLY_RELAY_H
#define BS_REPLY_RELAY_H

#include "server/server_state.h"

/* bs_core_relay_output */
void bs_relay_output(bs_server *server, bs_session *session, uint32_t shard, const char *bytes, size_t length);

/* The session cannot move now; it tries again some replies later. */
void bs_relay_delay_migration(bs_session *session);

#endif
