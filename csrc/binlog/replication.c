#include "binlog/replication.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file_io.h"
#include "binlog/sync_thread.h"

struct bs_replication {
    int wake_fd;
    int offer_fd; /* owned */
    bs_replicated_part *added; /* of the loop */
    size_t added_count;
    size_t added_capacity;

    pthread_mutex_t mutex; /* of the rest */
    pthread_cond_t changed;
    bs_replicated_part *parts; /* offered and not taken */
    size_t count;
    size_t capacity;
    uint64_t offered; /* generation */
    uint64_t confirmed;
    int error; /* negative errno of a failure, or 0 */
};

bs_replication *bs_replication_new(int wake_fd)
{
    bs_replication *replication = calloc(1, sizeof *replication);
    if (!replication)
        return NULL;
    replication->wake_fd = wake_fd;
    replication->offer_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (replication->offer_fd < 0) {
        free(replication);
        return NULL;
    }
    (void)pthread_mutex_init(&replication->mutex, NULL);
    (void)pthread_cond_init(&replication->changed, NULL);
    return replication;
}

void bs_replication_free(bs_replication *replication)
{
    if (!replication)
        return;
    (void)close(replication->offer_fd);
    (void)pthread_cond_destroy(&replication->changed);
    (void)pthread_mutex_destroy(&replication->mutex);
    free(replication->added);
    free(replication->parts);
    free(replication);
}

/* --- the loop --------------------------------------------------------------------------------------------- */

void bs_replication_add(bs_replication *replication, bs_replicated_part part)
{
    replication->added = bs_must_grow(replication->added, replication->added_count, &replication->added_capacity,
                                      sizeof *replication->added);
    replication->added[replication->added_count++] = part;
}

void bs_replication_offer(bs_replication *replication, uint64_t generation)
{
    (void)pthread_mutex_lock(&replication->mutex);
    for (size_t i = 0; i < replication->added_count; i++) {
        replication->parts =
            bs_must_grow(replication->parts, replication->count, &replication->capacity, sizeof *replication->parts);
        replication->parts[replication->count++] = replication->added[i];
    }
    replication->offered = generation;
    (void)pthread_mutex_unlock(&replication->mutex);
    replication->added_count = 0;
    bs_wake(replication->offer_fd);
}

int bs_replication_confirmed(bs_replication *replication, uint64_t generation, bool wait)
{
    (void)pthread_mutex_lock(&replication->mutex);
    while (wait && !replication->error && replication->confirmed < generation)
        (void)pthread_cond_wait(&replication->changed, &replication->mutex);
    const int result = replication->error ? replication->error : replication->confirmed >= generation;
    (void)pthread_mutex_unlock(&replication->mutex);
    return result;
}

/* --- the replicator --------------------------------------------------------------------------------------- */

int bs_replication_fd(const bs_replication *replication)
{
    return replication->offer_fd;
}

size_t bs_replication_take(bs_replication *replication, bs_replicated_part *parts, size_t most, uint64_t *generation)
{
    (void)pthread_mutex_lock(&replication->mutex);
    const size_t taken = replication->count < most ? replication->count : most;
    replication->count -= taken;
    if (taken > 0) {
        memcpy(parts, replication->parts, taken * sizeof *parts);
        memmove(replication->parts, replication->parts + taken, replication->count * sizeof *parts);
    }
    *generation = replication->count == 0 ? replication->offered : 0;
    (void)pthread_mutex_unlock(&replication->mutex);
    return taken;
}

/* Wakes the loop. */
static void changed(bs_replication *replication)
{
    (void)pthread_cond_broadcast(&replication->changed);
    bs_wake(replication->wake_fd);
}

void bs_replication_confirm(bs_replication *replication, uint64_t generation)
{
    (void)pthread_mutex_lock(&replication->mutex);
    if (generation > replication->confirmed && !replication->error)
        replication->confirmed = generation;
    (void)pthread_mutex_unlock(&replication->mutex);
    changed(replication);
}

void bs_replication_fail(bs_replication *replication, int error)
{
    (void)pthread_mutex_lock(&replication->mutex);
    if (!replication->error)
        replication->error = error;
    (void)pthread_mutex_unlock(&replication->mutex);
    changed(replication);
}
