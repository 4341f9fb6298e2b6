/* The sync thread: syncs files while the loop continues. One sync runs at a time. Its end makes the caller's eventfd
 * `wake_fd` readable. */
#ifndef BS_SYNC_H
#define BS_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bs_syncer bs_syncer;

/* A file to sync; a complete one is also truncated to its length and closed. */
typedef struct {
    int fd;
    int64_t complete_at; /* bytes, or -1 for the current file */
} bs_sync_file;

/* Syncs in this thread; without `durable` only truncates and closes complete files. `*took` is nanoseconds, measured
 * here because the loop's clock changes only between rounds. Returns 0, or a negative errno after the first failure;
 * complete files are closed in any case. */
int bs_sync_files(const bs_sync_file *files, size_t count, bool durable, int64_t *took);

void bs_wake(int wake_fd);

/* Returns NULL if there is no memory or no thread. */
bs_syncer *bs_syncer_new(int wake_fd);

/* Starts a sync of a copy of the list; none may be running. Returns 0 or -ENOMEM. */
int bs_syncer_start(bs_syncer *syncer, const bs_sync_file *files, size_t count);

/* Returns true with the results of bs_sync_files if the sync has ended; with `wait` it waits for the end. */
bool bs_syncer_ended(bs_syncer *syncer, bool wait, int *error, int64_t *took);

/* Waits for a running sync. Ignores NULL. */
void bs_syncer_free(bs_syncer *syncer);

#endif
