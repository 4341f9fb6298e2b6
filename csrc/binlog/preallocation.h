/* The file thread: makes binlog files ahead of need and removes those no longer needed, so that no command waits for
 * it. With a history it renames unneeded files to binlog.<number>.done, and the archiver removes them.
 *
 * A new file is filled with zeros and synced under another name, then renamed, then its folder is synced. So a file
 * binlog.N is always complete, and later syncs write only data. Removals keep their order on disk: the folder is synced
 * after each one, because a removed file may hold the deletes of jobs in the file before it. For the same reason a
 * failed removal blocks all later ones; it is retried with the next one.
 */
#ifndef BS_PREALLOCATION_H
#define BS_PREALLOCATION_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bs_preallocator bs_preallocator;

/* A file that was requested: its descriptor, or a negative errno. */
typedef struct {
    uint32_t number;
    int fd;
    int64_t size; /* bytes */
} bs_preallocated;

/* The caller keeps `dir_fd`. Without `durable` nothing is synced; with `keep_done` retired files are renamed. Returns
 * NULL if there is no memory or no thread. */
bs_preallocator *bs_preallocator_new(int dir_fd, bool durable, bool keep_done, int wake_fd);

typedef enum {
    BS_FILE_MAKE,          /* with `size` bytes */
    BS_FILE_DISCARD,       /* remove an unused file; a failure is harmless */
    BS_FILE_RETIRE,        /* remove, or rename to .done */
    BS_FILE_RETIRE_DAMAGED /* rename to .bad, or with a second name to .done */
} bs_file_task;

/* Requests a task with binlog.<number>. Requests are served in order. */
void bs_preallocator_request(bs_preallocator *preallocator, bs_file_task kind, uint32_t number, int64_t size);

enum { BS_RENAMED_MAX = 48 };

/* Suffixes of files that the server no longer uses. */
#define BS_BAD_SUFFIX ".bad"
#define BS_DONE_SUFFIX ".done"

/* Appends a suffix to a file's name, and a number if that name exists; the new name goes to `renamed`. Returns 0 or a
 * negative errno. */
int bs_rename_with_suffix(int dir_fd, const char *name, const char *suffix, char renamed[BS_RENAMED_MAX]);

/* Takes the next finished file; with `wait` it waits for a requested one. Returns false if there is none. */
bool bs_preallocator_take(bs_preallocator *preallocator, bool wait, bs_preallocated *ready);

/* Returns the negative errno of a removal that failed since the last call, or 0. */
int bs_preallocator_retire_error(bs_preallocator *preallocator);

/* Ends the thread after the requested removals. Requested files are not made, and those not taken are removed. Ignores
 * NULL. */
void bs_preallocator_free(bs_preallocator *preallocator);

#endif
