/* Reads the files of one folder one after another, while a server writes to the last one. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file_io.h"
#include "base/folder.h"
#include "history/job_history.h"

enum { READ_TRIES = 3 };

/* --- needed files --------------------------------------------------------------------------------------- */

/* Returns an index in `files` for this file, or -ENOMEM, -EFBIG. */
static int64_t add_file(bs_history *history, uint32_t folder, uint32_t number)
{
    uint32_t at = 0;
    while (at < history->file_count && history->files[at].number != 0)
        at++;
    if (at >= UINT32_C(1) << (64 - BS_HISTORY_OFFSET_BITS))
        return -EFBIG;
    bs_history_file *files = bs_grow(history->files, at, &history->file_capacity, sizeof *files);
    if (!files)
        return -ENOMEM;
    history->files = files;
    history->files[at] = (bs_history_file){.folder = folder, .number = number};
    if (at == history->file_count)
        history->file_count++;
    return at;
}

void bs_history_release_file(bs_history *history, uint32_t index)
{
    bs_history_file *file = &history->files[index];
    const bs_follower *follower = history->followers[file->folder];
    if (file->jobs > 0 || (follower->fd >= 0 && follower->file == index))
        return;
    bs_full_entries_close(&history->fulls, file->folder, file->number);
    file->number = 0;
}

/* --- listing ---------------------------------------------------------------------------------------------- */

/* Returns the lowest number above `above` in one listing, 0 if there is none. Files named binlog.N, binlog.N.done and,
 * from `bad_from` on, binlog.N.bad count. */
static int64_t lowest_listed(const bs_follower *follower, uint32_t above, uint32_t bad_from)
{
    int fd = openat(follower->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        int error = -errno;
        bs_close(fd);
        return error;
    }
    uint32_t lowest = 0;
    errno = 0;
    for (const struct dirent *item; (item = readdir(folder)) != NULL;) {
        const char *suffix = "";
        const uint32_t number = bs_number_of_file(item->d_name, &suffix);
        const bool bad = strcmp(suffix, ".bad") == 0 && number >= bad_from;
        const bool counts = !*suffix || bad || strcmp(suffix, ".done") == 0;
        if (counts && number > above && (lowest == 0 || number < lowest))
            lowest = number;
    }
    int error = -errno;
    (void)closedir(folder);
    return error ? error : (int64_t)lowest;
}

/* Lists twice, because a listing may miss a file that is being renamed, but a file is renamed only once. */
static int64_t lowest_above(const bs_follower *follower, uint32_t above, uint32_t bad_from)
{
    const int64_t first = lowest_listed(follower, above, bad_from);
    const int64_t second = first < 0 ? first : lowest_listed(follower, above, bad_from);
    if (second < 0 || first == 0)
        return second;
    return second > 0 && second < first ? second : first;
}

/* --- from file to file ------------------------------------------------------------------------------------ */

static void close_file(bs_history *history, bs_follower *follower)
{
    if (follower->fd < 0)
        return;
    (void)close(follower->fd);
    follower->fd = follower->scan.fd = -1;
    bs_history_release_file(history, follower->file);
}

/* Begins the file opened as `fd`. Returns 1, 0 if it has nothing to read yet, or a negative errno. */
static int begin_file(bs_history *history, bs_follower *follower, int fd, uint32_t number, bool last,
                      uint64_t durable_end)
{
    int kind = bs_scan_file(&follower->scan, fd, number, last ? durable_end : UINT64_MAX);
    if (kind == BS_SCAN_EMPTY && last)
        return 0;
    if (kind < 0 && bs_follower_retries(follower, BS_HISTORY_NO_POSITION - number, kind))
        return kind;
    int64_t index = add_file(history, follower->index, number);
    if (index < 0)
        return (int)index;
    int error = 0;
    const bool unreadable = kind < 0 || kind == BS_SCAN_VERSION;
    if (kind < 0)
        error = bs_history_add_fault(history, follower->index, number, 0, "it cannot be read: %s", strerror(-kind));
    else if (unreadable)
        error = bs_history_add_fault(history, follower->index, number, 0,
                                     "unreadable file: its version is %d, not 7 or 5", follower->scan.version);
    if (error) {
        bs_history_release_file(history, (uint32_t)index);
        return error;
    }
    if (unreadable)
        follower->scan.offset = follower->scan.length;
    follower->number = number;
    follower->file = (uint32_t)index;
    follower->complete = !last || unreadable;
    follower->fd = fd;
    follower->failed = 0;
    follower->invalid_length = 0;
    return 1;
}

/* Opens the file after the current one. Returns 1, 0 if there is none to read, or a negative errno. */
static int next_file(bs_history *history, bs_follower *follower, uint32_t durable_file, uint64_t durable_end)
{
    uint32_t before = follower->number;
    uint32_t number = before + 1;
    if (before >= durable_file)
        return 0;
    int fd = before == 0 ? -ENOENT : bs_open_under_any_name(follower->dir_fd, number);
    if (fd == -ENOENT) {
        int64_t listed = lowest_above(follower, before, before == 0 ? follower->bad_from : 0);
        if (listed <= 0)
            return (int)listed;
        number = (uint32_t)listed;
        fd = number > durable_file ? -ENOENT : bs_open_under_any_name(follower->dir_fd, number);
    }
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd; /* a file that was removed meanwhile: the next call lists again */
    bool last = number == durable_file;
    const bool is_empty = last && durable_end <= BS_ENTRY_HEADER;
    int begun = is_empty ? 0 : begin_file(history, follower, fd, number, last, durable_end);
    if (begun != 1)
        (void)close(fd);
    return begun;
}

/* Extends the scan to the durable position. Returns 1, 0 if there is nothing new in the file, or a negative errno. */
static int extend_scan(bs_follower *follower, uint32_t durable_file, uint64_t durable_end)
{
    if (follower->complete)
        return 1;
    bool last = follower->number == durable_file;
    if (follower->number > durable_file || (last && durable_end <= follower->scan.offset))
        return 0;
    int error = bs_scan_extend(&follower->scan, last ? durable_end : UINT64_MAX);
    if (error)
        return error;
    follower->complete = !last;
    return follower->complete || follower->scan.length != follower->invalid_length;
}

/* --- entries ---------------------------------------------------------------------------------------------- */

static int add_scan_fault(bs_history *history, const bs_follower *follower)
{
    const bs_scan *scan = &follower->scan;
    const uint32_t folder = follower->index;
    const uint32_t file = follower->number;
    if (scan->torn)
        return bs_history_add_fault(history, folder, file, scan->at, "the last entry was not written to its end");
    if (scan->next >= scan->length)
        return bs_history_add_fault(history, folder, file, scan->at,
                                    "unreadable entry: %s; the rest of the file is lost", scan->fault);
    return bs_history_add_fault(history, folder, file, scan->at, "unreadable entry: %s; reading goes on at %llu",
                                scan->fault, (unsigned long long)scan->next);
}

bool bs_follower_retries(bs_follower *follower, uint64_t offset, int error)
{
    if (error == -ENOMEM)
        return true;
    follower->failed = follower->failed_at == offset ? follower->failed + 1 : 1;
    follower->failed_at = offset;
    return follower->failed < READ_TRIES;
}

/* After several failed attempts skips the rest of the file. */
static int skip_unreadable(bs_history *history, bs_follower *follower, int error)
{
    bs_scan *scan = &follower->scan;
    if (bs_follower_retries(follower, scan->offset, error))
        return error;
    int result = bs_history_add_fault(history, follower->index, follower->number, scan->offset,
                                      "it cannot be read: %s; what follows in the file so far is lost",
                                      strerror(-error));
    if (result)
        return result;
    scan->offset = scan->end = scan->length;
    return 0;
}

/* Handles a result of bs_scan_next other than its end. Returns 0 or the result of bs_history_apply. */
static int handle_result(bs_history *history, bs_follower *follower, int scanned)
{
    bs_scan *scan = &follower->scan;
    if (scanned < 0)
        return skip_unreadable(history, follower, scanned);
    if (scanned == BS_SCAN_ENTRY) {
        int result = bs_history_apply(history, follower);
        if (result != 0)
            scan->offset = scan->end = scan->at;
        return result;
    }
    int error = add_scan_fault(history, follower);
    if (!error)
        bs_scan_skip(scan);
    return error;
}

/* Returns whether this is the end of the file for now. In a file that is being written, invalid bytes at the end may
 * become an entry. */
static bool ends_for_now(bs_follower *follower, int scanned)
{
    const bs_scan *scan = &follower->scan;
    if (scanned != BS_SCAN_FAULT || scan->next < scan->length || follower->complete)
        return scanned == BS_SCAN_END;
    follower->invalid_length = scan->length;
    return true;
}

/* Reads on in the file. BS_HISTORY_END: everything durable was read. */
static int read_file(bs_history *history, bs_follower *follower, uint64_t *left, uint64_t budget)
{
    bs_scan *scan = &follower->scan;
    while (*left > 0 && bs_bytes_length(&history->items) < budget) {
        uint64_t from = scan->offset;
        int scanned = bs_scan_next(scan);
        if (ends_for_now(follower, scanned)) {
            /* Bytes behind the last entry may change, so the window drops them. */
            int error = follower->complete ? 0 : bs_scan_extend(scan, scan->offset);
            return error ? error : BS_HISTORY_END;
        }
        int result = handle_result(history, follower, scanned);
        if (result != 0)
            return result;
        uint64_t read = scan->offset - from;
        history->stats.bytes += read;
        *left -= read < *left ? read : *left;
    }
    return BS_HISTORY_MORE;
}

/* Reads everything durable, within the budget. */
static int read_on(bs_history *history, bs_follower *follower, uint32_t durable_file, uint64_t durable_end,
                   uint64_t budget)
{
    uint64_t left = budget;
    for (;;) {
        int result = follower->fd < 0 ? next_file(history, follower, durable_file, durable_end)
                                      : extend_scan(follower, durable_file, durable_end);
        if (result <= 0)
            return result < 0 ? result : BS_HISTORY_END;
        result = read_file(history, follower, &left, budget);
        if (result != BS_HISTORY_END)
            return result;
        if (!follower->complete)
            return BS_HISTORY_END;
        close_file(history, follower);
    }
}

int bs_history_read(bs_history *history, uint32_t folder, uint32_t durable_file, uint64_t durable_end, uint64_t budget)
{
    if (folder >= history->follower_count)
        return -EINVAL;
    bs_bytes_clear(&history->items);
    history->item_count = 0;
    history->reading = history->followers[folder];
    int result = read_on(history, history->reading, durable_file, durable_end, budget > 0 ? budget : 1);
    history->reading = NULL;
    return result < 0 && history->item_count > 0 ? BS_HISTORY_MORE : result; /* the next call returns the error again */
}

/* --- read positions -------------------------------------------------------------------------------------- */

bs_binlog_position bs_history_position(const bs_history *history, uint32_t folder)
{
    return bs_follower_position(history->followers[folder]);
}

int64_t bs_history_needed_from(bs_history *history, uint32_t folder)
{
    const bs_follower *follower = history->followers[folder];
    const uint32_t reading = follower->number == 0 ? 0 : follower->fd < 0 ? follower->number + 1 : follower->number;
    for (;;) {
        bs_history_file *lowest = NULL;
        for (uint32_t i = 0; i < history->file_count; i++) {
            bs_history_file *file = &history->files[i];
            if (file->number != 0 && file->folder == folder && file->jobs > 0 && !file->gone &&
                file->number < (lowest ? lowest->number : reading))
                lowest = file;
        }
        if (!lowest)
            return reading;
        if (bs_exists_under_any_name(follower->dir_fd, lowest->number))
            return lowest->number;
        lowest->gone = true;
    }
}

void bs_history_set_checkpointed(bs_history *history, uint32_t folder, uint32_t file, uint64_t offset)
{
    bs_binlog_position position = {file, offset};
    bs_follower *follower = history->followers[folder];
    if (bs_position_before(follower->checkpointed, position))
        follower->checkpointed = position;
}

void bs_history_set_archived(bs_history *history, uint32_t folder, uint32_t file, uint64_t offset)
{
    history->followers[folder]->archived = (bs_binlog_position){file, offset};
}

/* --- folders ---------------------------------------------------------------------------------------------- */

int bs_history_add_folder(bs_history *history, const char *path, const char *key)
{
    size_t length = strlen(key);
    if (history->follower_count == BS_MAX_WORKERS || length > BS_HISTORY_KEY_MAX)
        return -EINVAL;
    bs_follower *follower = calloc(1, sizeof *follower);
    if (!follower)
        return -ENOMEM;
    follower->fd = -1;
    follower->dir_fd = bs_open_folder(path);
    int error = bs_scan_init(&follower->scan, BS_HISTORY_WINDOW);
    if (!error && follower->dir_fd < 0)
        error = follower->dir_fd;
    if (error) {
        bs_follower_free(follower);
        return error;
    }
    memcpy(follower->key, key, length + 1);
    follower->index = history->follower_count;
    follower->bad_from = UINT32_MAX;
    follower->scan.find_job = bs_history_find_job;
    follower->scan.context = history;
    history->followers[history->follower_count++] = follower;
    bs_history_resume_folder(history, follower);
    return (int)follower->index;
}

void bs_follower_free(bs_follower *follower)
{
    bs_close(follower->fd);
    bs_close(follower->dir_fd);
    bs_scan_free(&follower->scan);
    free(follower);
}
