/* The degraded mode of a replicated server: its log is *overdue* when it has not stored an offered generation within
 * bs_limits.replicate_timeout_ns. Until it has:
 *
 *   - Connections with held replies are closed, so the outcome of their commands is unknown: the log may still store
 *     them. Those that get held replies later are closed when the same time has passed again.
 *   - Commands that add work, or can be repeated without harm, get OUT_OF_MEMORY and are not executed. A client whose
 *     delete, release or bury was refused would have worked in vain, so these are executed, and their replies held.
 *
 * What has no reply yet waits on: moves of jobs, because their outcome must become known, a truncate that has begun, and
 * the wait for a job that has ended. The end of the lease ends them, too.
 */
#ifndef BS_OVERDUE_LOG_H
#define BS_OVERDUE_LOG_H

#include "runtime/core_state.h"

void bs_overdue_log_tick(bs_core *core, bs_now now);

/* When the tick has work; INT64_MAX: not before the next sync. */
int64_t bs_overdue_log_next(const bs_core *core);

#endif
