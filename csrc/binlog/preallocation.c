#include "binlog/preallocation.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file_io.h"
#include "binlog/sync_thread.h"
#include "binlog_files/entry.h"

enum { CHUNK = 1 << 20 };

typedef struct {
    bs_file_task kind;
    bs_preallocated file; /* of a file to make, `fd` is set when it is done */
} task;

typedef struct {
    task *tasks;
    size_t count;
    size_t capacity;
} task_list;

struct bs_preallocator {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int dir_fd;
    int wake_fd;
    bool durable;
    bool keep_done;
    atomic_bool leaving;
    int retire_error;
    uint32_t pending; /* requested files that are not in `finished` yet */
    task_list requested;
    task_list held_up; /* removals after a failed one, including it; used by the thread only */
    task_list finished; /* files that were made or could not be made */
};

static int sync_folder(const bs_preallocator *preallocator)
{
    return preallocator->durable ? bs_io_sync(preallocator->dir_fd) : 0;
}

static int fill(const bs_preallocator *preallocator, int fd, int64_t size)
{
    static const char zeros[CHUNK];
    const int32_t version = BS_VERSION;
    int error = bs_io_write_all(BS_IO_FILL, fd, (const char *)&version, sizeof version, 0);
    for (int64_t at = sizeof version; !error && at < size;) {
        int64_t length = size - at < CHUNK ? size - at : CHUNK;
        const bool leaving = atomic_load(&preallocator->leaving);
        error = leaving ? -ECANCELED : bs_io_write_all(BS_IO_FILL, fd, zeros, (size_t)length, at);
        at += length;
    }
    return !error && preallocator->durable ? bs_io_sync(fd) : error;
}

/* Returns the descriptor, or a negative errno after removing the file. */
static int make(const bs_preallocator *preallocator, const bs_preallocated *file)
{
    const bs_file_name unfinished = bs_name_of_file(file->number, ".new");
    const bs_file_name name = bs_name_of_file(file->number, "");
    int fd = bs_create_file(preallocator->dir_fd, unfinished.text);
    if (fd < 0)
        return fd;
    int error = fill(preallocator, fd, file->size);
    if (!error)
        error = bs_io_rename(preallocator->dir_fd, unfinished.text, name.text);
    const char *left = error ? unfinished.text : name.text;
    if (!error)
        error = sync_folder(preallocator);
    if (!error)
        return fd;
    (void)close(fd);
    /* Not through bs_io: an injected fault here would leave a file that no real fault leaves. */
    (void)unlinkat(preallocator->dir_fd, left, 0);
    return error;
}

int bs_rename_with_suffix(int dir_fd, const char *name, const char *suffix, char renamed[BS_RENAMED_MAX])
{
    (void)snprintf(renamed, BS_RENAMED_MAX, "%s%s", name, suffix);
    for (int again = 1; faccessat(dir_fd, renamed, F_OK, 0) == 0; again++)
        (void)snprintf(renamed, BS_RENAMED_MAX, "%s%s.%d", name, suffix, again);
    return bs_io_rename(dir_fd, name, renamed);
}

static bool is_same_file(int dir_fd, const char *one, const char *other)
{
    struct stat first, second;
    return fstatat(dir_fd, one, &first, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(dir_fd, other, &second, AT_SYMLINK_NOFOLLOW) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* Gives the file a second name with BS_BAD_SUFFIX, unless an interrupted start has done that. */
static int link_as_bad(int dir_fd, const char *name)
{
    char linked[BS_RENAMED_MAX];
    (void)snprintf(linked, sizeof linked, "%s%s", name, BS_BAD_SUFFIX);
    for (int again = 1; faccessat(dir_fd, linked, F_OK, 0) == 0; again++) {
        if (is_same_file(dir_fd, name, linked))
            return 0;
        (void)snprintf(linked, sizeof linked, "%s%s.%d", name, BS_BAD_SUFFIX, again);
    }
    return bs_io_link(dir_fd, name, linked);
}

/* An archiver reads binlog.N.done and removes it; binlog.N.bad stays. On a file system without links the file gets the
 * second name only, which an archiver that has just begun with the folder does not read. */
static int keep_damaged(const bs_preallocator *preallocator, const char *name)
{
    char renamed[BS_RENAMED_MAX];
    int error = preallocator->keep_done ? link_as_bad(preallocator->dir_fd, name) : -ENOSYS;
    if (error == -EPERM || error == -EOPNOTSUPP || error == -ENOSYS || error == -EMLINK)
        return bs_rename_with_suffix(preallocator->dir_fd, name, BS_BAD_SUFFIX, renamed);
    if (!error)
        error = sync_folder(preallocator);
    return error ? error : bs_rename_with_suffix(preallocator->dir_fd, name, BS_DONE_SUFFIX, renamed);
}

/* A file that does not exist counts as removed. */
static int remove_file(const bs_preallocator *preallocator, const task *wanted)
{
    const bs_file_name name = bs_name_of_file(wanted->file.number, "");
    char renamed[BS_RENAMED_MAX];
    int error;
    if (wanted->kind == BS_FILE_RETIRE_DAMAGED)
        error = keep_damaged(preallocator, name.text);
    else if (wanted->kind == BS_FILE_RETIRE && preallocator->keep_done)
        error = bs_rename_with_suffix(preallocator->dir_fd, name.text, BS_DONE_SUFFIX, renamed);
    else
        error = bs_io_unlink(preallocator->dir_fd, name.text);
    return error && error != -ENOENT ? error : sync_folder(preallocator);
}

static void append_task(task_list *list, task added)
{
    list->tasks = bs_must_grow(list->tasks, list->count, &list->capacity, sizeof *list->tasks);
    list->tasks[list->count++] = added;
}

static void remove_first(task_list *list, size_t count)
{
    list->count -= count;
    memmove(list->tasks, list->tasks + count, list->count * sizeof *list->tasks);
}

static int retire(bs_preallocator *preallocator, const task *wanted)
{
    task_list *held_up = &preallocator->held_up;
    append_task(held_up, *wanted);
    size_t done = 0;
    int error = 0;
    while (done < held_up->count && (error = remove_file(preallocator, &held_up->tasks[done])) == 0)
        done++;
    remove_first(held_up, done);
    return error;
}

/* Returns the negative errno of a removal that failed, or 0. */
static int perform(bs_preallocator *preallocator, task *wanted)
{
    if (wanted->kind == BS_FILE_MAKE)
        wanted->file.fd = atomic_load(&preallocator->leaving) ? -ECANCELED : make(preallocator, &wanted->file);
    else if (wanted->kind == BS_FILE_DISCARD)
        (void)remove_file(preallocator, wanted); /* if it stays, the next start finds an empty file */
    else
        return retire(preallocator, wanted);
    return 0;
}

static void *run(void *argument)
{
    bs_preallocator *preallocator = argument;
    (void)pthread_mutex_lock(&preallocator->mutex);
    for (;;) {
        while (preallocator->requested.count == 0 && !atomic_load(&preallocator->leaving))
            (void)pthread_cond_wait(&preallocator->changed, &preallocator->mutex);
        if (preallocator->requested.count == 0)
            break;
        task next = preallocator->requested.tasks[0];
        remove_first(&preallocator->requested, 1);
        (void)pthread_mutex_unlock(&preallocator->mutex);
        int error = perform(preallocator, &next);
        (void)pthread_mutex_lock(&preallocator->mutex);
        if (error)
            preallocator->retire_error = error;
        if (next.kind == BS_FILE_MAKE) {
            append_task(&preallocator->finished, next);
            preallocator->pending--;
        }
        (void)pthread_cond_broadcast(&preallocator->changed);
        bs_wake(preallocator->wake_fd);
    }
    (void)pthread_mutex_unlock(&preallocator->mutex);
    return NULL;
}

bs_preallocator *bs_preallocator_new(int dir_fd, bool durable, bool keep_done, int wake_fd)
{
    bs_preallocator *preallocator = calloc(1, sizeof *preallocator);
    if (!preallocator)
        return NULL;
    preallocator->dir_fd = dir_fd;
    preallocator->wake_fd = wake_fd;
    preallocator->durable = durable;
    preallocator->keep_done = keep_done;
    (void)pthread_mutex_init(&preallocator->mutex, NULL);
    (void)pthread_cond_init(&preallocator->changed, NULL);
    if (pthread_create(&preallocator->thread, NULL, run, preallocator) != 0) {
        free(preallocator);
        return NULL;
    }
    return preallocator;
}

void bs_preallocator_request(bs_preallocator *preallocator, bs_file_task kind, uint32_t number, int64_t size)
{
    (void)pthread_mutex_lock(&preallocator->mutex);
    append_task(&preallocator->requested, (task){.kind = kind, .file = {.number = number, .size = size}});
    if (kind == BS_FILE_MAKE)
        preallocator->pending++;
    (void)pthread_cond_broadcast(&preallocator->changed);
    (void)pthread_mutex_unlock(&preallocator->mutex);
}

bool bs_preallocator_take(bs_preallocator *preallocator, bool wait, bs_preallocated *ready)
{
    (void)pthread_mutex_lock(&preallocator->mutex);
    while (wait && preallocator->finished.count == 0 && preallocator->pending > 0)
        (void)pthread_cond_wait(&preallocator->changed, &preallocator->mutex);
    bool any = preallocator->finished.count > 0;
    if (any) {
        *ready = preallocator->finished.tasks[0].file;
        remove_first(&preallocator->finished, 1);
    }
    (void)pthread_mutex_unlock(&preallocator->mutex);
    return any;
}

int bs_preallocator_retire_error(bs_preallocator *preallocator)
{
    (void)pthread_mutex_lock(&preallocator->mutex);
    int error = preallocator->retire_error;
    preallocator->retire_error = 0;
    (void)pthread_mutex_unlock(&preallocator->mutex);
    return error;
}

void bs_preallocator_free(bs_preallocator *preallocator)
{
    if (!preallocator)
        return;
    (void)pthread_mutex_lock(&preallocator->mutex);
    atomic_store(&preallocator->leaving, true);
    (void)pthread_cond_broadcast(&preallocator->changed);
    (void)pthread_mutex_unlock(&preallocator->mutex);
    (void)pthread_join(preallocator->thread, NULL);
    for (size_t i = 0; i < preallocator->finished.count; i++) {
        const bs_preallocated *file = &preallocator->finished.tasks[i].file;
        if (file->fd < 0)
            continue;
        (void)close(file->fd);
        /* The next start removes an empty file that stays. */
        (void)unlinkat(preallocator->dir_fd, bs_name_of_file(file->number, "").text, 0);
    }
    (void)pthread_cond_destroy(&preallocator->changed);
    (void)pthread_mutex_destroy(&preallocator->mutex);
    free(preallocator->requested.tasks);
    free(preallocator->held_up.tasks);
    free(preallocator->finished.tasks);
    free(preallocator);
}
