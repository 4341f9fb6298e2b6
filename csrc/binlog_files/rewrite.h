/* Writes the live jobs of a reader to new files, one full entry each; the interface is in api/reader.h.
 *
 * The files are read again, and a job is written when its last entry comes. So jobs are in the order of their last
 * events, from which C beanstalkd restores the order of buried jobs.
 */
#ifndef BS_REWRITE_H
#define BS_REWRITE_H

#include "api/reader.h"

#endif
