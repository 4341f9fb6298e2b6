/* The lengths of files: entries in later files that record them, and files that have become shorter since.
 *
 * A file that was cut at the edge of an entry, or emptied, has no entry that is wrong. So a later file records the length
 * of a complete one (B7): the first file of a start those of all files read, C beanstalkd's included; the file that
 * follows; and the small file that a stop leaves behind the last one. The last file of a killed server has no recorded
 * length until the next start.
 *
 * With -F a recorded length holds for the present boot only, because a power cut can take the end of the file and leave
 * the entry with its length.
 */
#ifndef BS_LENGTHS_H
#define BS_LENGTHS_H

#include "binlog/binlog.h"

/* Compares the files that were read with their recorded lengths; reports shorter ones and marks them as damaged. */
void bs_lengths_check(const bs_binlog *binlog);

/* After bs_lengths_check: finds the files without a recorded length that this server can rely on. */
void bs_lengths_begin(bs_binlog *binlog);

/* Appends missing lengths to the current file, as far as there is space that is owed to nobody. */
void bs_lengths_append(bs_binlog *binlog, bs_now now);

/* At a stop, when all is synced: turns the first ready into a small file with the missing lengths. False: no length is
 * missing, or the file could not be written. */
bool bs_lengths_finish(bs_binlog *binlog, bs_now now);

#endif
