/* Space in the binlog (invariant B1 of binlog.h): the preallocated files, what fits into them, and when to request
 * more. */
#ifndef BS_SPACE_H
#define BS_SPACE_H

#include "binlog/binlog.h"
#include "binlog_files/entry.h"

/* Returns whether an entry of this size fits into the current file, or into the first preallocated file that is large
 * enough, and after it `owed` short ones, there and in the files behind it. Files before that one stay empty. */
bool bs_space_in_current(const bs_binlog *binlog, int64_t size, uint64_t owed);
bool bs_space_in_next(const bs_binlog *binlog, int64_t size, uint64_t owed);

/* Takes a file that the file thread has made. Returns false if there is none. */
bool bs_space_take(bs_binlog *binlog, bool wait, bs_now now);

/* Handles a refused entry: the binlog becomes `full`, unless the entry needs a file of its own. */
void bs_space_refused(bs_binlog *binlog, int64_t size);

/* Ends `full` when the smallest refused entry fits again. */
void bs_space_update_full(bs_binlog *binlog);

/* Waits for a file, a larger one if an entry of `size` bytes needs it. This is the only wait for the disk inside a
 * command; preallocation makes it rare. */
bool bs_space_wait(bs_binlog *binlog, int64_t size, bs_now now);

/* Increases the number of files to preallocate, because a deferred entry found no space. */
void bs_space_ran_out(bs_binlog *binlog);

/* Requests the files that B1 needs and some more, and gives back surplus ones. */
void bs_space_request_ahead(bs_binlog *binlog, bs_now now);

/* Adds a preallocated file behind the others. */
void bs_space_add(bs_binlog *binlog, bs_preallocated ready);

/* Takes the next file; there must be one. */
bs_preallocated bs_space_next_file(bs_binlog *binlog);

/* Bytes of the smallest file: the entry with the highest id, and one more. */
enum { BS_SPACE_FILE_MIN = BS_ENTRY_HEADER + 2 * BS_ENTRY_SHORT };

/* Makes sure of a file to start with. Returns 0 or a negative errno. */
int bs_space_first_file(bs_binlog *binlog);

#endif
