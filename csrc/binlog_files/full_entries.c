#include "binlog_files/full_entries.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/file_io.h"

int bs_full_entries_init(bs_full_entries *fulls)
{
    *fulls = (bs_full_entries){.uses = 0};
    for (size_t i = 0; i < BS_FULL_WINDOWS; i++)
        fulls->windows[i].fd = -1;
    for (size_t i = 0; i < BS_FULL_WINDOWS; i++) {
        int error = bs_scan_init(&fulls->windows[i].scan, BS_FULL_WINDOW);
        if (error)
            return error;
    }
    return 0;
}

static void close_window(bs_full_window *window)
{
    bs_close(window->fd);
    window->fd = window->scan.fd = -1;
    window->number = 0;
}

void bs_full_entries_free(bs_full_entries *fulls)
{
    for (size_t i = 0; i < BS_FULL_WINDOWS; i++) {
        close_window(&fulls->windows[i]);
        bs_scan_free(&fulls->windows[i].scan);
    }
}

void bs_full_entries_close(bs_full_entries *fulls, uint32_t folder, uint32_t number)
{
    for (size_t i = 0; i < BS_FULL_WINDOWS; i++)
        if (fulls->windows[i].number == number && fulls->windows[i].folder == folder)
            close_window(&fulls->windows[i]);
}

/* The names of a file. The first one comes again, because the server may rename the file meanwhile. */
static const char *const suffixes[] = {"", ".done", ".bad", ""};

enum { NAMES = sizeof suffixes / sizeof *suffixes };

int bs_open_under_any_name(int dir_fd, uint32_t number)
{
    int fd = -ENOENT;
    for (size_t i = 0; i < NAMES && fd == -ENOENT; i++)
        fd = bs_open_regular(dir_fd, bs_name_of_file(number, suffixes[i]).text, O_RDONLY);
    return fd;
}

bool bs_exists_under_any_name(int dir_fd, uint32_t number)
{
    for (size_t i = 0; i < NAMES; i++)
        if (faccessat(dir_fd, bs_name_of_file(number, suffixes[i]).text, F_OK, 0) == 0 || errno != ENOENT)
            return true;
    return false;
}

static bs_full_window *find_window(bs_full_entries *fulls, uint32_t folder, uint32_t number)
{
    bs_full_window *oldest = &fulls->windows[0];
    for (size_t i = 0; i < BS_FULL_WINDOWS; i++) {
        bs_full_window *window = &fulls->windows[i];
        if (window->number == number && window->folder == folder)
            return window;
        if (window->used < oldest->used)
            oldest = window;
    }
    close_window(oldest);
    return oldest;
}

bs_scan *bs_full_entries_scan(bs_full_entries *fulls, int dir_fd, uint32_t folder, uint32_t number, uint64_t length,
                              int *error)
{
    bs_full_window *window = find_window(fulls, folder, number);
    window->used = ++fulls->uses;
    *error = 0;
    if (window->number == 0) {
        window->fd = bs_open_under_any_name(dir_fd, number);
        int kind = window->fd < 0 ? window->fd : bs_scan_file(&window->scan, window->fd, number, length);
        window->folder = folder;
        window->number = number;
        *error = kind < 0 ? kind : kind != BS_SCAN_FILE ? -ESTALE : 0;
    } else if (!window->complete) {
        *error = bs_scan_extend(&window->scan, length);
    } else {
        return &window->scan;
    }
    window->complete = length == UINT64_MAX;
    if (*error)
        close_window(window);
    return *error ? NULL : &window->scan;
}
