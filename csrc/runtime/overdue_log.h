/* The degraded mode of a replicated server: its log is *overdue* when it has not stored an offered generation within
 * bs_limits.replicate_timeout_ns. Until it has:
 *
 *   - Connections with held replies are closed, so the outcome of their commands is unknown: the log may still store
 *     them. Connections whose replies are held meanwhile, because they depend on what is not stored, are closed when
 *     the same time has passed again.
 *   - Commands that write get OUT_OF_MEMORY and are not executed. Others continue.
 *
 * Moves of jobs to other workers wait on, because their outcome must become known. The end of the lease ends them, too.
 */
#ifndef BS_OVERDUE_LOG_H
#define BS_OVERDUE_LOG_H

#include "runtime/core_state.h"

void bs_overdue_log_tick(bs_core *core, bs_now now);

/* When the tick has work; INT64_MAX: not before the next sync. */
int64_t bs_overdue_log_next(const bs_core *core);

#endif
