/* The sync thread: syncs files while the loop goes on with the next round.
 *
 * One sync is under way at a time. Its end makes `wake_fd` (an eventfd of the caller) readable.
 */
#ifndef BS_SYNC_H
#define BS_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bs_syncer bs_syncer;

/* A file to sync; one that is complete is cut to its length and closed as well. */
typedef struct {
    int fd;
    int64_t complete_at; /* bytes, or -1: it is still written to */
} bs_sync_file;

/* Does it in this thread. 0, or a negative errno after the first failure; complete files are closed in any case. */
int bs_sync_files(const bs_sync_file *files, size_t count, bool durable);

/* The same, durable, and how long it has taken, nanoseconds: by a clock of its own, because that of the loop goes by
 * rounds. */
int bs_sync_timed(const bs_sync_file *files, size_t count, int64_t *took);

/* NULL when there is no memory or no thread. */
bs_syncer *bs_syncer_new(int wake_fd);

/* Starts on a copy of the list. None may be under way. 0 or -ENOMEM. */
int bs_syncer_start(bs_syncer *syncer, const bs_sync_file *files, size_t count);

/* True when the sync that was started has ended, with what bs_sync_timed has said; waits for that if asked to. */
bool bs_syncer_ended(bs_syncer *syncer, bool wait, int *error, int64_t *took);

/* Waits for a sync under way. NULL is ignored. */
void bs_syncer_free(bs_syncer *syncer);

#endif
