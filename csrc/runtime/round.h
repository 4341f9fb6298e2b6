/* A *round* reads events, executes every complete command, writes the binlog once, and sends every reply that may
 * leave.
 *
 * The order within a round matters:
 *   L1  The binlog is written before any reply of the round is sent, so that a process that dies has acknowledged
 *       nothing unwritten.
 *   L2  A sync is started before replies are sent, so that both run at the same time.
 *   L3  After a failed write or sync nothing is sent.
 */
#ifndef BS_ROUND_H
#define BS_ROUND_H

#include "runtime/core_state.h"

/* These functions return 0, or BS_ERR_BINLOG and the core is `fatal`. */

/* Ends a round except for sending: writes, and starts a sync that is due or, with `here`, syncs in this thread. */
int bs_round_commit(bs_core *core, bs_now now, bool here);

/* Releases the replies of a sync that has ended; waits for it if asked to. */
int bs_round_poll(bs_core *core, bool wait, bs_now now);

/* Writes and syncs everything, and sends the replies that waited. */
int bs_round_stop(bs_core *core, bs_now now);

#endif
