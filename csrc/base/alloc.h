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

enum { BS_CACHE_LINE = 64 };

/* `size` bytes from the start of a cache line, to be freed with free(). Many of them are asked for in huge pages: who
 * reads here and there in an array much larger than the caches pays more for finding the page than for the bytes.
 * Ends the process by abort() rather than fail. */
void *bs_must_alloc_lines(size_t size);

#endif
