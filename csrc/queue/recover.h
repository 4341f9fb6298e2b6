/* Reading a binlog folder at the start: C beanstalkd's files (versions 5 and 7) and ours.
 *
 * Nothing that is read is trusted: an entry that cannot be right is reported with its file and offset, and what
 * follows is used as far as its own checksums speak for it. Everything is on disk before it is read (unsynced.c).
 */
#ifndef BS_RECOVER_H
#define BS_RECOVER_H

#include "binlog/binlog.h"
#include "queue/queue.h"

/* Reads all files into the queue, oldest first, and raises shared->last_id. 0, BS_ERR_BINLOG, or a negative errno when the folder
 * cannot be read at all or memory ran out; the binlog must then not be started. */
int bs_recover(bs_binlog *binlog, bs_queue *queue, bs_now now);

#endif
