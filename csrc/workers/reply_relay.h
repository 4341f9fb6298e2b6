/* What a proxy has said, for the client at home: where each reply ends, and what follows from it.
 *
 * Bytes come in any pieces. A client gets the first line of a reply only when it is complete, so that a worker that goes
 * in the middle of it can still be answered for.
 */
#ifndef BS_REPLY_RELAY_H
#define BS_REPLY_RELAY_H

#include "server/server_state.h"

/* bs_core_relay_output. */
void bs_relay_output(bs_server *server, bs_session *session, uint32_t shard, const char *bytes, size_t length);

/* It could not move, and asks again some replies later. */
void bs_relay_delay_migration(bs_session *session);

#endif
