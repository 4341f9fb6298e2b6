/* Sends this worker's counts to the other workers: COUNT for each remote tube, CENSUS for connections (barrier.h). */
#ifndef BS_SHARED_COUNTS_H
#define BS_SHARED_COUNTS_H

#include "server/server_state.h"

/* Sends every count that has changed since the last call. */
void bs_counts_send(bs_server *server);

/* To one worker; it must follow the counts of tubes. */
void bs_census_send(bs_server *server, uint32_t shard);

#endif
