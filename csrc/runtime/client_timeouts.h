/* Closes clients that exceed a timeout: idle clients, clients that do not finish a command, clients that do not read.
 *
 * A client is idle since the last byte in either direction. While its session waits in a reserve, holds a job on any
 * shard or is owed a reply, the idle timeout does not apply; after that it starts anew.
 */
#ifndef BS_CLIENT_TIMEOUTS_H
#define BS_CLIENT_TIMEOUTS_H

#include "runtime/core_state.h"

/* Closes the clients whose timeout is over; returns the next time to check, INT64_MAX without any. */
int64_t bs_timeouts_tick(bs_core *core, bs_now now);

#endif
