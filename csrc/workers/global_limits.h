/* What a server does not go beyond, as sums over all its workers.
 *
 * Each worker counts its own in shared memory, and whoever is about to add looks at all. Two workers that add at the
 * same moment do not see each other, so a limit can be gone beyond by a job or a tube for each worker.
 */
#ifndef BS_GLOBAL_LIMITS_H
#define BS_GLOBAL_LIMITS_H

#include "server/server_state.h"

enum { BS_OUTPUT_DEFAULT = 1 << 20 }; /* bs_limits.output of a core that was told nothing else */

/* May there be one more job with such a body (with CR LF)? */
bool bs_limits_allow_job(const bs_server *server, uint32_t body_size);

/* May this session use or watch that tube: is there one of this name, or may there be one more? */
bool bs_limits_allow_tube(const bs_server *server, const bs_session *session, const char *name, size_t length);

#endif
