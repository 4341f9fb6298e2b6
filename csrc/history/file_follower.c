/* The files of one folder, one after another, while the server writes to the last of them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "history/job_history.h"

/* C beanstalkd counts in an int. */
enum { HIGHEST_NUMBER = 2147483647, READ_TRIES = 3, DIGITS = 10 };

/* --- files that are of use ------------------------------------------------------------------------------ */

int64_t bs_lives_file_index(bs_lives *lives, uint32_t folder, uint32_t number)
{
    while (lives->file_free < lives->file_count && lives->files[lives->file_free].number != 0)
        lives->file_free++;
    uint32_t at = lives->file_free;
    if (at >= UINT32_C(1) << (64 - BS_LIVES_OFFSET_BITS))
        return -EFBIG;
    if (at == lives->file_capacity) {
        uint32_t capacity = at ? at * 2 : 16;
        bs_lives_file *files = realloc(lives->files, capacity * sizeof *files);
        if (!files)
            return -ENOMEM;
        lives->files = files;
        lives->file_capacity = capacity;
    }
    lives->files[at] = (bs_lives_file){.folder = folder, .number = number};
    if (at == lives->file_count)
        lives->file_count++;
    return at;
}

void bs_lives_leave_file(bs_lives *lives, uint32_t index)
{
    bs_lives_file *file = &lives->files[index];
    const bs_trail *trail = lives->trails[file->folder];
    if (file->jobs > 0 || (trail->fd >= 0 && trail->file == index))
        return;
    bs_full_entries_leave(&lives->fulls, file->folder, file->number);
    file->number = 0;
    if (index < lives->file_free)
        lives->file_free = index;
}

/* --- names ------------------------------------------------------------------------------------------------ */

/* The number in binlog.N, binlog.N.done or binlog.N.bad, 0 if it is none of these. */
static uint32_t number_in(const char *name, bool *aside)
{
    static const char prefix[] = "binlog.";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return 0;
    name += sizeof prefix - 1;
    uint64_t number = 0;
    size_t digits = 0;
    for (; name[digits] >= '0' && name[digits] <= '9' && digits <= DIGITS; digits++)
        number = number * 10 + (uint64_t)(name[digits] - '0');
    if (digits == 0 || name[0] == '0' || number > HIGHEST_NUMBER)
        return 0;
    name += digits;
    *aside = strcmp(name, ".bad") == 0;
    return *aside || !*name || strcmp(name, ".done") == 0 ? (uint32_t)number : 0;
}

/* The lowest number above `above` that the folder shows, 0 if none; of those kept aside only from `aside` on. */
static int64_t lowest_shown(const bs_trail *trail, uint32_t above, uint32_t aside_from)
{
    int fd = openat(trail->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        int error = -errno;
        if (fd >= 0)
            (void)close(fd);
        return error;
    }
    uint32_t lowest = 0;
    errno = 0;
    for (const struct dirent *item; (item = readdir(folder)) != NULL;) {
        bool aside = false;
        uint32_t number = number_in(item->d_name, &aside);
        if (number > above && (!aside || number >= aside_from) && (lowest == 0 || number < lowest))
            lowest = number;
    }
    int error = -errno;
    (void)closedir(folder);
    return error ? error : (int64_t)lowest;
}

/* The same of all that are there. A listing may not show the file that is renamed just then, but each is renamed once. */
static int64_t lowest_above(const bs_trail *trail, uint32_t above, uint32_t aside_from)
{
    int64_t one = lowest_shown(trail, above, aside_from);
    int64_t other = one < 0 ? one : lowest_shown(trail, above, aside_from);
    return other > 0 && (one == 0 || other < one) ? other : other < 0 ? other : one;
}

/* --- from file to file ------------------------------------------------------------------------------------ */

static void close_file(bs_lives *lives, bs_trail *trail)
{
    if (trail->fd < 0)
        return;
    (void)close(trail->fd);
    trail->fd = trail->scan.fd = -1;
    bs_lives_leave_file(lives, trail->file);
}

/* What was opened as number: 1 when it is to be read, 0 when nothing is there (yet), a negative errno. */
static int begin_file(bs_lives *lives, bs_trail *trail, int fd, uint32_t number, bool last, uint64_t safe_end)
{
    int kind = bs_scan_part(&trail->scan, fd, number, last ? safe_end : UINT64_MAX);
    if (kind == BS_SCAN_EMPTY && last)
        return 0;
    if (kind < 0 && bs_trail_tries_again(trail, BS_LIVES_NOWHERE - number, kind))
        return kind;
    int64_t index = bs_lives_file_index(lives, trail->index, number);
    if (index < 0)
        return (int)index;
    int error = 0;
    const bool unreadable = kind < 0 || kind == BS_SCAN_VERSION;
    if (kind < 0)
        error = bs_lives_complain(lives, trail->index, number, 0, "it cannot be read: %s", strerror(-kind));
    else if (unreadable)
        error = bs_lives_complain(lives, trail->index, number, 0, "unreadable file: its version is %d, not 7 or 5",
                                  trail->scan.version);
    if (error) {
        bs_lives_leave_file(lives, (uint32_t)index);
        return error;
    }
    if (unreadable)
        trail->scan.offset = trail->scan.length;
    trail->number = number;
    trail->file = (uint32_t)index;
    trail->whole = !last || unreadable;
    trail->fd = fd;
    trail->failed = 0;
    trail->hopeless = 0;
    return 1;
}

/* Opens what comes behind the file of before. 1, 0 when there is nothing that may be read, or a negative errno. */
static int next_file(bs_lives *lives, bs_trail *trail, uint32_t safe_file, uint64_t safe_end)
{
    uint32_t before = trail->number;
    uint32_t number = before + 1;
    if (before >= safe_file)
        return 0;
    int fd = before == 0 ? -ENOENT : bs_open_log(trail->dir_fd, number);
    if (fd == -ENOENT) {
        int64_t found = lowest_above(trail, before, before == 0 ? trail->aside : 0);
        if (found <= 0)
            return (int)found;
        number = (uint32_t)found;
        if (number > safe_file || (number == safe_file && safe_end <= BS_ENTRY_HEADER))
            return 0;
        fd = bs_open_log(trail->dir_fd, number);
        if (fd == -ENOENT)
            return 0; /* removed meanwhile: the next call looks anew */
    }
    if (fd < 0)
        return fd;
    bool last = number == safe_file;
    int begun = last && safe_end <= BS_ENTRY_HEADER ? 0 : begin_file(lives, trail, fd, number, last, safe_end);
    if (begun != 1)
        (void)close(fd);
    return begun;
}

/* Lets the scan see what may be read now. 1, 0 when there is nothing new in the file, or a negative errno. */
static int look_on(bs_trail *trail, uint32_t safe_file, uint64_t safe_end)
{
    if (trail->whole)
        return 1;
    bool last = trail->number == safe_file;
    if (trail->number > safe_file || (last && safe_end <= trail->scan.offset))
        return 0;
    int error = bs_scan_extend(&trail->scan, last ? safe_end : UINT64_MAX);
    if (error)
        return error;
    trail->whole = !last;
    return trail->whole || trail->scan.length != trail->hopeless;
}

/* --- entries ---------------------------------------------------------------------------------------------- */

static int complain_of_fault(bs_lives *lives, const bs_trail *trail)
{
    const bs_scan *scan = &trail->scan;
    if (scan->torn)
        return bs_lives_complain(lives, trail->index, trail->number, scan->at,
                                 "the last entry was not written to its end");
    if (scan->next >= scan->length)
        return bs_lives_complain(lives, trail->index, trail->number, scan->at,
                                 "unreadable entry: %s; the rest of the file is lost", scan->fault);
    return bs_lives_complain(lives, trail->index, trail->number, scan->at,
                             "unreadable entry: %s; reading goes on at %llu", scan->fault,
                             (unsigned long long)scan->next);
}

bool bs_trail_tries_again(bs_trail *trail, uint64_t offset, int error)
{
    if (error == -ENOMEM)
        return true;
    trail->failed = trail->failed_at == offset ? trail->failed + 1 : 1;
    trail->failed_at = offset;
    return trail->failed < READ_TRIES;
}

/* Of a place that the disk does not give again and again the rest of the file is left out. */
static int unreadable(bs_lives *lives, bs_trail *trail, int error)
{
    bs_scan *scan = &trail->scan;
    if (bs_trail_tries_again(trail, scan->offset, error))
        return error;
    int told = bs_lives_complain(lives, trail->index, trail->number, scan->offset,
                                 "it cannot be read: %s; what follows in the file so far is lost", strerror(-error));
    if (told)
        return told;
    scan->offset = scan->end = scan->length;
    return 0;
}

/* What the scan has found is taken. 0 or what bs_lives_take returns. */
static int take_found(bs_lives *lives, bs_trail *trail, int found)
{
    bs_scan *scan = &trail->scan;
    if (found < 0)
        return unreadable(lives, trail, found);
    if (found == BS_SCAN_ENTRY) {
        int result = bs_lives_take(lives, trail);
        if (result != 0)
            scan->offset = scan->end = scan->at;
        return result;
    }
    int error = complain_of_fault(lives, trail);
    if (!error)
        bs_scan_skip(scan);
    return error;
}

/* Is that all of the file for now? In one that is written to, nonsense at the end may become an entry. */
static bool ends(bs_trail *trail, int found)
{
    const bs_scan *scan = &trail->scan;
    if (found != BS_SCAN_FAULT || scan->next < scan->length || trail->whole)
        return found == BS_SCAN_END;
    trail->hopeless = scan->length;
    return true;
}

/* What lies behind the last entry may be another when it is looked at again. BS_LIVES_END or a negative errno. */
static int stop_here(bs_trail *trail)
{
    int error = trail->whole ? 0 : bs_scan_extend(&trail->scan, trail->scan.offset);
    return error ? error : BS_LIVES_END;
}

/* Reads on in the file. BS_LIVES_END: all that may be read of it. */
static int read_file(bs_lives *lives, bs_trail *trail, uint64_t *left, uint64_t budget)
{
    bs_scan *scan = &trail->scan;
    while (*left > 0 && bs_bytes_length(&lives->items) < budget) {
        uint64_t from = scan->offset;
        int found = bs_scan_next(scan);
        if (ends(trail, found))
            return stop_here(trail);
        int result = take_found(lives, trail, found);
        if (result != 0)
            return result;
        uint64_t read = scan->offset - from;
        lives->facts.bytes += read;
        *left -= read < *left ? read : *left;
    }
    return BS_LIVES_MORE;
}

/* All that may be read, as far as the budget goes. */
static int read_on(bs_lives *lives, bs_trail *trail, uint32_t safe_file, uint64_t safe_end, uint64_t budget)
{
    uint64_t left = budget;
    for (;;) {
        int result = trail->fd < 0 ? next_file(lives, trail, safe_file, safe_end)
                                   : look_on(trail, safe_file, safe_end);
        if (result <= 0)
            return result < 0 ? result : BS_LIVES_END;
        result = read_file(lives, trail, &left, budget);
        if (result != BS_LIVES_END)
            return result;
        if (!trail->whole)
            return BS_LIVES_END;
        close_file(lives, trail);
    }
}

int bs_lives_read(bs_lives *lives, uint32_t folder, uint32_t safe_file, uint64_t safe_end, uint64_t budget)
{
    if (folder >= lives->trail_count)
        return -EINVAL;
    lives->items.start = lives->items.end = 0;
    lives->item_count = 0;
    lives->reading = lives->trails[folder];
    int result = read_on(lives, lives->reading, safe_file, safe_end, budget > 0 ? budget : 1);
    lives->reading = NULL;
    return result < 0 && lives->item_count > 0 ? BS_LIVES_MORE : result; /* the next call meets it again */
}

/* --- where reading stands --------------------------------------------------------------------------------- */

int bs_lives_place(const bs_lives *lives, uint32_t folder, uint32_t *file, uint64_t *offset)
{
    if (folder >= lives->trail_count)
        return -EINVAL;
    bs_log_place place = bs_trail_place(lives->trails[folder]);
    *file = place.file;
    *offset = place.offset;
    return 0;
}

static bool is_there(const bs_trail *trail, uint32_t number)
{
    static const char *const endings[] = {"", ".done", ".bad", ""}; /* it may be renamed meanwhile */
    char name[32];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        (void)snprintf(name, sizeof name, "binlog.%u%s", number, endings[i]);
        if (faccessat(trail->dir_fd, name, F_OK, 0) == 0 || errno != ENOENT)
            return true;
    }
    return false;
}

int64_t bs_lives_needed_from(bs_lives *lives, uint32_t folder)
{
    if (folder >= lives->trail_count)
        return -EINVAL;
    const bs_trail *trail = lives->trails[folder];
    const uint32_t reading = trail->number == 0 ? 0 : trail->fd < 0 ? trail->number + 1 : trail->number;
    for (;;) {
        bs_lives_file *lowest = NULL;
        for (uint32_t i = 0; i < lives->file_count; i++) {
            bs_lives_file *file = &lives->files[i];
            if (file->number != 0 && file->folder == folder && file->jobs > 0 && !file->gone &&
                file->number < (lowest ? lowest->number : reading))
                lowest = file;
        }
        if (!lowest)
            return reading;
        if (is_there(trail, lowest->number))
            return lowest->number;
        lowest->gone = true;
    }
}

int bs_lives_carried(bs_lives *lives, uint32_t folder, uint32_t file, uint64_t offset)
{
    if (folder >= lives->trail_count)
        return -EINVAL;
    bs_log_place place = {file, offset};
    bs_trail *trail = lives->trails[folder];
    if (bs_log_before(trail->carried, place))
        trail->carried = place;
    return 0;
}

int bs_lives_archived(bs_lives *lives, uint32_t folder, uint32_t file, uint64_t offset)
{
    if (folder >= lives->trail_count)
        return -EINVAL;
    lives->trails[folder]->archived = (bs_log_place){file, offset};
    lives->trails[folder]->any_archived = true;
    return 0;
}

/* --- folders ---------------------------------------------------------------------------------------------- */

int bs_lives_add(bs_lives *lives, const char *path, const char *key)
{
    size_t length = strlen(key);
    if (lives->trail_count == BS_MAX_WORKERS || length > BS_LIVES_KEY)
        return -EINVAL;
    bs_trail *trail = calloc(1, sizeof *trail);
    if (!trail)
        return -ENOMEM;
    int error = bs_scan_init(&trail->scan, BS_LIVES_WINDOW);
    trail->dir_fd = error ? -1 : bs_open_folder(path);
    if (trail->dir_fd < 0) {
        error = error ? error : trail->dir_fd;
        bs_scan_free(&trail->scan);
        free(trail);
        return error;
    }
    memcpy(trail->key, key, length + 1);
    trail->fd = -1;
    trail->index = lives->trail_count;
    trail->aside = UINT32_MAX;
    trail->scan.jobs = bs_lives_jobs(lives);
    lives->trails[lives->trail_count++] = trail;
    bs_lives_continue(lives, trail);
    return (int)trail->index;
}

void bs_trail_free(bs_trail *trail)
{
    if (trail->fd >= 0)
        (void)close(trail->fd);
    (void)close(trail->dir_fd);
    bs_scan_free(&trail->scan);
    free(trail);
}
