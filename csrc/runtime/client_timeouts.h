/* Closes clients that exceed a timeout: idle clients, clients that do not finish a command, clients that do not read.
 *
 * A client is idle since the last byte in either direction. The idle timeout does not apply while its session waits in
 * a reserve, holds a job on any shard, or has an outstanding reply; after that it starts again.
 */
#ifndef BS_CLIENT_TIMEOUTS_H
#define BS_CLIENT_TIMEOUTS_H

#include "runtime/core_state.h"

/* Closes these clients; returns the time of the next check, INT64_MAX without any. */
int64_t bs_timeouts_tick(bs_core *core, bs_now now);

#endif
