/* Compaction: moves live jobs out of the oldest file that has any, so that it can go.
 *
 * Which jobs those are is read from the file itself, a piece at a time: no job carries links for it.
 */
#ifndef BS_COMPACT_H
#define BS_COMPACT_H

#include "binlog/binlog.h"

/* Moves some jobs when twice as much is dead as alive: the more is dead and the more was appended, the more. */
void bs_compact(bs_binlog *binlog, bs_now now);

/* The same on request: bs_core_compact. */
void bs_compact_more(bs_binlog *binlog, int64_t per_cent, bs_compact_state *state, bs_now now);

/* Frees where the reading stands; NULL is ignored. */
void bs_compaction_free(bs_compaction *compaction);

#endif
