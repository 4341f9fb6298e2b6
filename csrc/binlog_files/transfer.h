/* Writes the jobs of whole folders as new folders; the rest of the interface is in api/transfer.h. */
#ifndef BS_TRANSFER_H
#define BS_TRANSFER_H

#include "api/transfer.h"
#include "jobs/job.h"

/* Adds the jobs of a table that outlives the transfer. Returns 0 or -ENOMEM. */
int bs_transfer_add_jobs(bs_transfer *transfer, const bs_job_table *table);

#endif
