/* Memory for what cannot be refused.
 *
 * A put or a new connection is answered when memory runs out. A job that changes its place cannot be: there is no
 * one to tell, and forgetting it would lose it. For those the process stops, and the binlog has the job.
 */
#ifndef BS_ALLOC_H
#define BS_ALLOC_H

#include <stddef.h>

/* As realloc(pointer, count * size), but ends the process by abort() rather than fail. */
void *bs_must_realloc(void *pointer, size_t count, size_t size);

#endif
