/* Files that may not be on disk as they are read, and bringing them there before a start reads them.
 *
 * A killed process leaves pages that were written and never synced; reading cannot tell them from others. After a failed
 * fdatasync the kernel may even mark such pages clean, so that a later sync succeeds and writes nothing. A server
 * therefore keeps a line in the file `lock`: the number of the first file that may not be on disk, and the boot of the
 * machine for which that holds, because no unsynced page outlives a boot. The next start of the same boot copies those
 * files into new ones, which it syncs; all others it only syncs.
 *
 * The line is never synced: it counts only as long as the page cache does.
 */
#ifndef BS_UNSYNCED_H
#define BS_UNSYNCED_H

#include "binlog/binlog.h"

/* Gets the files of these numbers, which rise, and the folder to disk. To be called with the lock and before anything is
 * read. What is no regular file is left to the reader. 0, BS_ERR_BINLOG
 * with the reason in `failed`, or a negative errno with the name of a file that cannot be opened in `refused`. */
int bs_unsynced_settle(bs_binlog *binlog, const uint32_t *numbers, size_t count);

/* All files before binlog.<number> are on disk. Writes only when that is news. */
void bs_unsynced_from(bs_binlog *binlog, uint32_t number);

/* Everything is. */
void bs_unsynced_none(bs_binlog *binlog);

#endif
