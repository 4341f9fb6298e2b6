#include "binlog/sync_thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_io.h"

typedef enum { IDLE, WANTED, RUNNING, ENDED, LEAVING } phase;

struct bs_syncer {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    phase phase;
    int wake_fd;
    int error;
    int64_t took; /* nanoseconds */
    bs_sync_file *files;
    size_t count;
    size_t capacity;
};

int bs_sync_files(const bs_sync_file *files, size_t count, bool durable, int64_t *took)
{
    const int64_t began = bs_clock_mono();
    int error = 0;
    for (size_t i = 0; i < count; i++) {
        bool complete = files[i].complete_at >= 0;
        if (!error && complete)
            error = bs_io_truncate(files[i].fd, files[i].complete_at);
        if (!error && durable)
            error = bs_io_datasync(files[i].fd);
        if (complete && close(files[i].fd) != 0 && !error && errno != EINTR)
            error = -errno;
    }
    *took = bs_clock_mono() - began;
    return error;
}

void bs_wake(int wake_fd)
{
    const uint64_t one = 1;
    /* An eventfd refuses only when its counter is full, and then it is readable already. */
    ssize_t written = write(wake_fd, &one, sizeof one);
    (void)written;
}

static void *run(void *argument)
{
    bs_syncer *syncer = argument;
    (void)pthread_mutex_lock(&syncer->mutex);
    for (;;) {
        while (syncer->phase != WANTED && syncer->phase != LEAVING)
            (void)pthread_cond_wait(&syncer->changed, &syncer->mutex);
        if (syncer->phase == LEAVING)
            break;
        syncer->phase = RUNNING;
        (void)pthread_mutex_unlock(&syncer->mutex);
        int64_t took;
        int error = bs_sync_files(syncer->files, syncer->count, true, &took);
        (void)pthread_mutex_lock(&syncer->mutex);
        syncer->error = error;
        syncer->took = took;
        syncer->phase = ENDED;
        /* Unlock first: otherwise a woken thread on this processor would wait for the mutex. */
        (void)pthread_mutex_unlock(&syncer->mutex);
        (void)pthread_cond_broadcast(&syncer->changed);
        bs_wake(syncer->wake_fd);
        (void)pthread_mutex_lock(&syncer->mutex);
    }
    (void)pthread_mutex_unlock(&syncer->mutex);
    return NULL;
}

bs_syncer *bs_syncer_new(int wake_fd)
{
    bs_syncer *syncer = calloc(1, sizeof *syncer);
    if (!syncer)
        return NULL;
    syncer->wake_fd = wake_fd;
    (void)pthread_mutex_init(&syncer->mutex, NULL);
    (void)pthread_cond_init(&syncer->changed, NULL);
    if (pthread_create(&syncer->thread, NULL, run, syncer) != 0) {
        free(syncer);
        return NULL;
    }
    return syncer;
}

int bs_syncer_start(bs_syncer *syncer, const bs_sync_file *files, size_t count)
{
    (void)pthread_mutex_lock(&syncer->mutex);
    if (syncer->phase != IDLE)
        abort();
    if (count > syncer->capacity) {
        bs_sync_file *grown = realloc(syncer->files, count * sizeof *grown);
        if (!grown) {
            (void)pthread_mutex_unlock(&syncer->mutex);
            return -ENOMEM;
        }
        syncer->files = grown;
        syncer->capacity = count;
    }
    memcpy(syncer->files, files, count * sizeof *files);
    syncer->count = count;
    syncer->phase = WANTED;
    (void)pthread_mutex_unlock(&syncer->mutex);
    (void)pthread_cond_broadcast(&syncer->changed);
    return 0;
}

bool bs_syncer_ended(bs_syncer *syncer, bool wait, int *error, int64_t *took)
{
    (void)pthread_mutex_lock(&syncer->mutex);
    while (wait && (syncer->phase == WANTED || syncer->phase == RUNNING))
        (void)pthread_cond_wait(&syncer->changed, &syncer->mutex);
    bool ended = syncer->phase == ENDED;
    if (ended) {
        *error = syncer->error;
        *took = syncer->took;
        syncer->phase = IDLE;
    }
    (void)pthread_mutex_unlock(&syncer->mutex);
    return ended;
}

void bs_syncer_free(bs_syncer *syncer)
{
    if (!syncer)
        return;
    int error;
    int64_t took;
    (void)bs_syncer_ended(syncer, true, &error, &took);
    (void)pthread_mutex_lock(&syncer->mutex);
    syncer->phase = LEAVING;
    (void)pthread_cond_broadcast(&syncer->changed);
    (void)pthread_mutex_unlock(&syncer->mutex);
    (void)pthread_join(syncer->thread, NULL);
    (void)pthread_cond_destroy(&syncer->changed);
    (void)pthread_mutex_destroy(&syncer->mutex);
    free(syncer->files);
    free(syncer);
}
