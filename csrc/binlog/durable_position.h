/* The safe place (api/types.h): up to where the binlog will be there after a crash of the machine, told to whoever reads the
 * files in another process. Told only where a history is kept.
 */
#ifndef BS_DURABLE_POSITION_H
#define BS_DURABLE_POSITION_H

#include "binlog/binlog.h"

/* Everything before `end` of this file, and all earlier files, are durable from now on. */
void bs_durable_position_set(bs_counters *counters, uint64_t file, uint64_t end);

#endif
