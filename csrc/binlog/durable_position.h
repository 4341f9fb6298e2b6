/* The safe place (api/types.h): up to where the binlog will be there after a crash of the machine, told to whoever reads the
 * files in another process. Told only where a history is kept.
 */
#ifndef BS_SAFE_H
#define BS_SAFE_H

#include "binlog/binlog.h"

/* Everything before `end` of this file, and all earlier files, are safe from now on. */
void bs_safe_tell(bs_counters *counters, uint64_t file, uint64_t end);

#endif
