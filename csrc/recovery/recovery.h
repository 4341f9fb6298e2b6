/* Reads files of C beanstalkd (versions 5 and 7) and of this server into a queue.
 *
 * Every entry is validated: an invalid one is reported with its file and offset, and later entries are used if they are
 * valid. Everything is on disk before the queue is used (unsynced.c).
 *
 * A standby reads while its files grow, so that it has all jobs in memory when it takes over. What it has then is what
 * it would have read at once.
 */
#ifndef BS_RECOVERY_H
#define BS_RECOVERY_H

#include "queue/queue.h"

typedef struct bs_recovery bs_recovery;

/* Begins to read a folder into an empty queue; both must outlive it. NULL without memory. */
bs_recovery *bs_recovery_new(bs_binlog *binlog, bs_queue *queue);
void bs_recovery_free(bs_recovery *r);

/* Reads on up to a position: all files below `file`, and the first `end` bytes of that one. Another process writes and
 * removes the files, the oldest first; nothing is changed here. Returns 0; -ESTALE: it has read more; or a negative errno.
 * After an error begin again. */
int bs_recovery_follow(bs_recovery *r, uint32_t file, uint64_t end, bs_now now);

/* Reads the rest, the oldest file first, fills the queue, and raises shared->last_id. Needs the folder's lock. 0,
 * BS_ERR_BINLOG, or a negative errno when the folder cannot be read at all or memory ran out; the binlog must then not be
 * started. */
int bs_recovery_end(bs_recovery *r, bs_now now);

#endif
