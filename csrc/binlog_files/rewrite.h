/* The jobs that a reader knows, written to new files: one full entry each. The calls are in api/reader.h.
 *
 * Files are read once more, and a job is written when its last entry comes, so that jobs are in the order of their last
 * events: that is how C beanstalkd orders buried ones. The other half of such a job, its full entry, is looked up.
 */
#ifndef BS_REWRITE_H
#define BS_REWRITE_H

#include "api/reader.h"

#endif
