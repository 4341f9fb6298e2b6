/* Room in the binlog (invariant B1 of binlog.h): the files that are ready, how much fits, when to ask for more. */
#ifndef BS_SPACE_H
#define BS_SPACE_H

#include "binlog/binlog.h"
#include "binlog_files/entry.h"

/* What a new file can take besides the entry with the highest id, bytes. */
int64_t bs_space_per_file(const bs_binlog *binlog);

/* Does an entry of this size fit into the current file, or into the first ready that is large enough, and after it so
 * many short ones, there and in the preallocator behind it? The preallocator before that one are left empty. */
bool bs_space_in_current(const bs_binlog *binlog, int64_t size, uint64_t owed);
bool bs_space_in_next(const bs_binlog *binlog, int64_t size, uint64_t owed);

/* Takes a file that the file thread has made. False: there was none, or none could be made. */
bool bs_space_take(bs_binlog *binlog, bool wait, bs_now now);

/* An entry of this size was refused for want of room: the binlog is `full`, unless the entry needs a file of its own. */
void bs_space_refused(bs_binlog *binlog, int64_t size);

/* Ends `full` when the smallest refused entry fits again. */
void bs_space_update_full(bs_binlog *binlog);

/* Waits for a file, a larger one than usual if an entry of `size` bytes needs it. This is the only wait for the disk
 * inside a command; asking earlier makes it rare. */
bool bs_space_wait(bs_binlog *binlog, int64_t size, bs_now now);

/* A note had no room: more is asked for ahead from now on. */
void bs_space_ran_out(bs_binlog *binlog);

/* Asks for as many files as B1 needs and some more, and gives back what is too many. */
void bs_space_request_ahead(bs_binlog *binlog, bs_now now);

/* Adds a file that is ready, behind the others. */
void bs_space_add(bs_binlog *binlog, bs_preallocated ready);

/* Takes the next file out; there must be one. */
bs_preallocated bs_space_next_file(bs_binlog *binlog);

/* Bytes of the smallest file: the entry with the highest id, and one more. */
enum { BS_SPACE_FILE_MIN = BS_ENTRY_HEADER + 2 * BS_ENTRY_SHORT };

/* Makes sure of a file to start with: 0 or a negative errno. */
int bs_space_first_file(bs_binlog *binlog);

#endif
