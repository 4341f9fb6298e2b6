/* What Python has the core do for other workers: what core.h says of sessions and proxies, of claims, of moving. */
#ifndef BS_COORDINATION_H
#define BS_COORDINATION_H

#include "runtime/loop.h"

/* Is there anything to take with bs_core_next_upcall? */
bool bs_core_has_upcalls(const bs_core *core);

/* What is left to do after a call that may have let sessions go on. The next bs_core_run does the rest. */
void bs_core_go_on(bs_core *core, bs_now now);

#endif
