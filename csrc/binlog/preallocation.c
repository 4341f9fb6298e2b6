#include "binlog/preallocation.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file_io.h"
#include "binlog_files/entry.h"

enum { CHUNK = 1 << 20, NAME_BYTES = 32 };

typedef enum { MAKE, DISCARD, REMOVE, HAND_OVER, KEEP_ASIDE } action;

typedef struct {
    uint32_t number;
    action action;
    int64_t size; /* of a file to make, bytes */
} task;

struct bs_spares {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int dir_fd;
    int wake_fd;
    bool durable;
    bool hand_over;
    atomic_bool leaving;
    int retire_error;
    uint32_t making; /* files asked for and not yet made */
    task *tasks;
    size_t task_count;
    size_t task_capacity;
    task *held_up; /* removals behind one that failed, itself first; the thread's own */
    size_t held_count;
    size_t held_capacity;
    bs_spare *made;
    size_t made_count;
    size_t made_capacity;
};

static void name_of(char *out, uint32_t number, const char *suffix)
{
    (void)snprintf(out, NAME_BYTES, "binlog.%u%s", number, suffix);
}

static int sync_folder(const bs_spares *spares)
{
    return spares->durable && bs_io.sync(spares->dir_fd) != 0 ? -errno : 0;
}

static int fill(const bs_spares *spares, int fd, int64_t size)
{
    static const char zeros[CHUNK];
    const int32_t version = BS_VERSION;
    int error = bs_io_write_all(bs_io.fill, fd, (const char *)&version, sizeof version, 0);
    for (int64_t at = sizeof version; !error && at < size;) {
        int64_t length = size - at < CHUNK ? size - at : CHUNK;
        error = atomic_load(&spares->leaving) ? -ECANCELED
                                              : bs_io_write_all(bs_io.fill, fd, zeros, (size_t)length, at);
        at += length;
    }
    if (!error && spares->durable && bs_io.sync(fd) != 0)
        error = -errno;
    return error;
}

/* The descriptor, or a negative errno with nothing left behind. */
static int make(const bs_spares *spares, uint32_t number, int64_t size)
{
    char unfinished[NAME_BYTES];
    char name[NAME_BYTES];
    name_of(unfinished, number, ".new");
    name_of(name, number, "");
    int fd = bs_io.open(spares->dir_fd, unfinished, O_RDWR | O_CREAT | O_TRUNC);
    if (fd < 0)
        return -errno;
    const char *left = unfinished;
    int error = fill(spares, fd, size);
    if (!error && bs_io.rename(spares->dir_fd, unfinished, name) != 0)
        error = -errno;
    else if (!error)
        left = name;
    if (!error)
        error = sync_folder(spares);
    if (!error)
        return fd;
    (void)close(fd);
    /* Not through the table: a test that fails this call would see a file that no real fault leaves. */
    (void)unlinkat(spares->dir_fd, left, 0);
    return error;
}

int bs_keep_aside(int dir_fd, const char *name, const char *suffix, char aside[BS_ASIDE_BYTES])
{
    (void)snprintf(aside, BS_ASIDE_BYTES, "%s%s", name, suffix);
    for (int again = 1; faccessat(dir_fd, aside, F_OK, 0) == 0; again++)
        (void)snprintf(aside, BS_ASIDE_BYTES, "%s%s.%d", name, suffix, again);
    return bs_io.rename(dir_fd, name, aside) != 0 ? -errno : 0;
}

/* A file that has gone already is as good as removed. */
static int remove_file(const bs_spares *spares, const task *wanted)
{
    char name[NAME_BYTES];
    char aside[BS_ASIDE_BYTES];
    int error = 0;
    name_of(name, wanted->number, "");
    if (wanted->action == KEEP_ASIDE || wanted->action == HAND_OVER)
        error = bs_keep_aside(spares->dir_fd, name, wanted->action == HAND_OVER ? BS_HANDED_OVER : BS_DAMAGED, aside);
    else if (bs_io.unlink(spares->dir_fd, name) != 0)
        error = -errno;
    return error && error != -ENOENT ? error : sync_folder(spares);
}

static void append_task(task **tasks, size_t *count, size_t *capacity, task added)
{
    if (*count == *capacity) {
        *capacity = *capacity ? *capacity * 2 : 8;
        *tasks = bs_must_realloc(*tasks, *capacity, sizeof **tasks);
    }
    (*tasks)[(*count)++] = added;
}

static int retire(bs_spares *spares, const task *wanted)
{
    append_task(&spares->held_up, &spares->held_count, &spares->held_capacity, *wanted);
    size_t done = 0;
    int error = 0;
    while (done < spares->held_count && (error = remove_file(spares, &spares->held_up[done])) == 0)
        done++;
    spares->held_count -= done;
    memmove(spares->held_up, spares->held_up + done, spares->held_count * sizeof *spares->held_up);
    return error;
}

/* 0 or a negative errno; the descriptor of a new file. */
static int carry_out(bs_spares *spares, const task *wanted)
{
    switch (wanted->action) {
    case MAKE:
        return atomic_load(&spares->leaving) ? -ECANCELED : make(spares, wanted->number, wanted->size);
    case DISCARD:
        (void)remove_file(spares, wanted); /* an empty file that stays is found by the next start */
        return 0;
    case REMOVE:
    case HAND_OVER:
    case KEEP_ASIDE:
        return retire(spares, wanted);
    }
    abort();
}

static void finish(bs_spares *spares, const task *wanted, int result)
{
    if (wanted->action != MAKE) {
        if (result < 0)
            spares->retire_error = result;
        return;
    }
    if (spares->made_count == spares->made_capacity) {
        spares->made_capacity = spares->made_capacity ? spares->made_capacity * 2 : 4;
        spares->made = bs_must_realloc(spares->made, spares->made_capacity, sizeof *spares->made);
    }
    spares->made[spares->made_count++] = (bs_spare){wanted->number, result, wanted->size};
    spares->making--;
}

static void *run(void *argument)
{
    bs_spares *spares = argument;
    (void)pthread_mutex_lock(&spares->mutex);
    for (;;) {
        while (spares->task_count == 0 && !atomic_load(&spares->leaving))
            (void)pthread_cond_wait(&spares->changed, &spares->mutex);
        if (spares->task_count == 0)
            break;
        task next = spares->tasks[0];
        for (size_t i = 1; i < spares->task_count; i++)
            spares->tasks[i - 1] = spares->tasks[i];
        spares->task_count--;
        (void)pthread_mutex_unlock(&spares->mutex);
        int result = carry_out(spares, &next);
        (void)pthread_mutex_lock(&spares->mutex);
        finish(spares, &next, result);
        (void)pthread_cond_broadcast(&spares->changed);
        uint64_t one = 1;
        /* An eventfd refuses only when its counter is full, and then it is readable already. */
        ssize_t written = write(spares->wake_fd, &one, sizeof one);
        (void)written;
    }
    (void)pthread_mutex_unlock(&spares->mutex);
    return NULL;
}

bs_spares *bs_spares_new(int dir_fd, bool durable, bool hand_over, int wake_fd)
{
    bs_spares *spares = calloc(1, sizeof *spares);
    if (!spares)
        return NULL;
    spares->dir_fd = dir_fd;
    spares->wake_fd = wake_fd;
    spares->durable = durable;
    spares->hand_over = hand_over;
    (void)pthread_mutex_init(&spares->mutex, NULL);
    (void)pthread_cond_init(&spares->changed, NULL);
    if (pthread_create(&spares->thread, NULL, run, spares) != 0) {
        free(spares);
        return NULL;
    }
    return spares;
}

static void ask(bs_spares *spares, uint32_t number, action what, int64_t size)
{
    (void)pthread_mutex_lock(&spares->mutex);
    append_task(&spares->tasks, &spares->task_count, &spares->task_capacity, (task){number, what, size});
    if (what == MAKE)
        spares->making++;
    (void)pthread_cond_broadcast(&spares->changed);
    (void)pthread_mutex_unlock(&spares->mutex);
}

void bs_spares_make(bs_spares *spares, uint32_t number, int64_t size)
{
    ask(spares, number, MAKE, size);
}

void bs_spares_retire(bs_spares *spares, uint32_t number, bool aside)
{
    ask(spares, number, aside ? KEEP_ASIDE : spares->hand_over ? HAND_OVER : REMOVE, 0);
}

void bs_spares_discard(bs_spares *spares, uint32_t number)
{
    ask(spares, number, DISCARD, 0);
}

bool bs_spares_take(bs_spares *spares, bool wait, bs_spare *spare)
{
    (void)pthread_mutex_lock(&spares->mutex);
    while (wait && spares->made_count == 0 && spares->making > 0)
        (void)pthread_cond_wait(&spares->changed, &spares->mutex);
    bool any = spares->made_count > 0;
    if (any) {
        *spare = spares->made[0];
        for (size_t i = 1; i < spares->made_count; i++)
            spares->made[i - 1] = spares->made[i];
        spares->made_count--;
    }
    (void)pthread_mutex_unlock(&spares->mutex);
    return any;
}

int bs_spares_retire_error(bs_spares *spares)
{
    (void)pthread_mutex_lock(&spares->mutex);
    int error = spares->retire_error;
    spares->retire_error = 0;
    (void)pthread_mutex_unlock(&spares->mutex);
    return error;
}

void bs_spares_free(bs_spares *spares)
{
    if (!spares)
        return;
    (void)pthread_mutex_lock(&spares->mutex);
    atomic_store(&spares->leaving, true);
    (void)pthread_cond_broadcast(&spares->changed);
    (void)pthread_mutex_unlock(&spares->mutex);
    (void)pthread_join(spares->thread, NULL);
    for (size_t i = 0; i < spares->made_count; i++) {
        char name[NAME_BYTES];
        if (spares->made[i].fd < 0)
            continue;
        (void)close(spares->made[i].fd);
        name_of(name, spares->made[i].number, "");
        (void)unlinkat(spares->dir_fd, name, 0); /* an empty file that stays is removed by the next start */
    }
    (void)pthread_cond_destroy(&spares->changed);
    (void)pthread_mutex_destroy(&spares->mutex);
    free(spares->tasks);
    free(spares->held_up);
    free(spares->made);
    free(spares);
}
