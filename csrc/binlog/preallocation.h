/* The file thread: makes binlog files ahead of need and removes those no longer needed, so that no command waits.
 * Where a history is kept, it does not remove them but renames them to binlog.<number>.done: who archives them removes
 * them then.
 *
 * A new file is filled with zeros and synced under another name, then renamed, then its folder is synced: a name
 * binlog.N is never seen half made, and no later sync has to write anything but data. Removals keep their order on
 * disk: the folder is synced after each, because a removed file may hold the deletes for jobs in the one before it. For
 * the same reason a removal that fails holds up all later ones; it is tried again with the next.
 */
#ifndef BS_PREALLOCATION_H
#define BS_PREALLOCATION_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bs_preallocator bs_preallocator;

/* A file that was asked for: open and ready, or a negative errno instead of the descriptor. */
typedef struct {
    uint32_t number;
    int fd;
    int64_t size; /* bytes */
} bs_preallocated;

/* `dir_fd` stays the caller's. `durable` false: nothing is synced; `keep_done`: what is retired is renamed. NULL when
 * there is no memory or no thread. */
bs_preallocator *bs_preallocator_new(int dir_fd, bool durable, bool keep_done, int wake_fd);

/* Asks for binlog.<number> with so many bytes. Requests are served in order. */
void bs_preallocator_make(bs_preallocator *preallocator, uint32_t number, int64_t size);

/* Removes binlog.<number> or hands it over, or with `renamed` keeps it as damaged. */
void bs_preallocator_retire(bs_preallocator *preallocator, uint32_t number, bool renamed);

/* Removes a file that was made and not used, in the order of requests; if that fails it does no harm. */
void bs_preallocator_discard(bs_preallocator *preallocator, uint32_t number);

enum { BS_RENAMED_MAX = 48 };

/* Suffixes of files that are no longer the server's. */
#define BS_BAD_SUFFIX ".bad"
#define BS_DONE_SUFFIX ".done"

/* Renames a file to its name and one of these, and a number where that exists already; the new name goes to `renamed`. 0
 * or a negative errno. */
int bs_rename_with_suffix(int dir_fd, const char *name, const char *suffix, char renamed[BS_RENAMED_MAX]);

/* The next file that is ready; with `wait` it waits for one that was asked for. False: there is none. */
bool bs_preallocator_take(bs_preallocator *preallocator, bool wait, bs_preallocated *ready);

/* The negative errno of a removal that failed since the last call, or 0. */
int bs_preallocator_retire_error(bs_preallocator *preallocator);

/* Ends the thread after the removals that were asked for. Files asked for are not made any more, and those not taken
 * are removed again. NULL is ignored. */
void bs_preallocator_free(bs_preallocator *preallocator);

#endif
