/* Limits on sums over all workers.
 *
 * Each worker counts its own part in shared memory, and sums all parts before it adds to its own. Workers that add at
 * the same moment do not see each other, so a limit can be exceeded by one job or tube for each worker.
 */
#ifndef BS_GLOBAL_LIMITS_H
#define BS_GLOBAL_LIMITS_H

#include "server/server_state.h"

enum { BS_OUTPUT_DEFAULT = 1 << 20 }; /* default of bs_limits.output */

/* Returns whether a job with such a body, including CR LF, stays within the limit of memory. */
bool bs_limits_allow_job(const bs_server *server, uint32_t body_size);

/* Returns whether this tube exists or may be created. */
bool bs_limits_allow_tube(const bs_server *server, const bs_session *session, const char *name, size_t length);

#endif
