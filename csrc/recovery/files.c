/* Reads one binlog file, which another process may be writing. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "recovery/recovery_state.h"

enum { BLOCK = 512 };

/* Logs a fault. An entry at the end that a crash has cut short is logged, but is no damage. */
static void report(bs_recovery *r)
{
    const bs_scan *scan = &r->scan;
    bs_events *events = r->binlog->events;
    if (scan->torn) {
        bs_events_log(events, BS_WARNING,
                      "binlog.%u:%" PRIu64 ": the last entry was not written to its end; it is left out", r->number,
                      scan->at);
        return;
    }
    char rest[64] = "the rest of the file is left out";
    if (scan->next < scan->length)
        (void)snprintf(rest, sizeof rest, "reading goes on at %" PRIu64, scan->next);
    bs_events_log(events, BS_WARNING, "binlog.%u:%" PRIu64 ": unreadable entry: %s; %s", r->number, scan->at,
                  scan->fault, rest);
    r->file->damaged = true;
    r->file->end_unreadable = scan->next >= scan->length;
}

static int read_entries(bs_recovery *r)
{
    int kind;
    while ((kind = bs_scan_next(&r->scan)) != BS_SCAN_END) {
        if (kind == -ENOMEM)
            return kind;
        if (kind < 0)
            bs_scan_set_unreadable(&r->scan, kind);
        if (kind != BS_SCAN_ENTRY) {
            if (r->partial && r->scan.next >= r->scan.length)
                break; /* the rest of the entry may come */
            report(r);
            bs_scan_skip(&r->scan);
            continue;
        }
        int error = bs_recovery_apply(r, &r->scan.entry, bs_job_table_find(&r->queue->jobs, r->scan.entry.id));
        if (error)
            return error;
    }
    r->binlog->total += (int64_t)r->scan.end - r->file->bytes;
    r->file->bytes = (int64_t)r->scan.end;
    return 0;
}

static void keep_bad_file(bs_recovery *r, const char *name, const char *why)
{
    char kept[BS_RENAMED_MAX];
    bool renamed = bs_rename_with_suffix(r->binlog->dir_fd, name, BS_BAD_SUFFIX, kept) == 0;
    bs_events_log(r->binlog->events, BS_ERROR, "%s:0: unreadable file: %s; %s%s", name, why,
                  renamed ? "kept as " : "it stays where it is", renamed ? kept : "");
}

/* A preallocated file, or one without entries. The space of a sparse one is not kept: a preallocated file has its
 * blocks on the disk. */
static void keep_empty(bs_recovery *r)
{
    struct stat status;
    bs_binlog_file *file = bs_binlog_add_file(r->binlog, r->number, BS_ENTRY_HEADER);
    if (r->scan.length <= BS_ENTRY_HEADER || r->scan.version != BS_VERSION || fstat(r->scan.fd, &status) != 0)
        return;
    bool sparse = (uint64_t)status.st_blocks * BLOCK < r->scan.length;
    file->unused = sparse ? BS_ENTRY_HEADER : (int64_t)r->scan.length;
}

/* Truncates the zeros after the last entry, which a kill has left. */
static void truncate_zeros(bs_recovery *r, const char *name)
{
    const bs_binlog_file *file = r->file;
    int error = 0;
    if (file->damaged || file->bytes >= (int64_t)r->scan.length ||
        !bs_scan_rest_is_zero(&r->scan, (uint64_t)file->bytes, &error))
        return;
    int fd = bs_open_regular(r->binlog->dir_fd, name, O_RDWR);
    if (fd < 0)
        return; /* the file is only larger than needed */
    (void)bs_io_truncate(fd, file->bytes);
    (void)close(fd);
}

/* Begins a file. Returns 1 if it has entries, 0 if there is nothing to read, or a negative errno. */
static int begin_opened(bs_recovery *r, const char *name, int fd, uint64_t length)
{
    int kind = bs_scan_file(&r->scan, fd, r->number, length);
    if (kind == -ENOMEM)
        return kind;
    if (kind == BS_SCAN_EMPTY) {
        if (!r->partial)
            keep_empty(r);
        return 0;
    }
    if (kind == BS_SCAN_FILE) {
        r->file = bs_binlog_add_file(r->binlog, r->number, BS_ENTRY_HEADER);
        r->attributes_end = 0;
        return 1;
    }
    char why[64];
    (void)snprintf(why, sizeof why, "its version is %d, not 7 or 5", r->scan.version);
    if (r->follows)
        return kind < 0 ? kind : -EPROTO;
    keep_bad_file(r, name, kind < 0 ? strerror(-kind) : why);
    return 0;
}

/* As begin_opened. A file that cannot be opened is not damaged: a start without it would lose its jobs. */
static int begin_file(bs_recovery *r, uint32_t number, uint64_t length)
{
    const bs_file_name name = bs_name_of_file(number, "");
    r->number = number;
    r->binlog->last_number = number;
    int fd = bs_open_regular(r->binlog->dir_fd, name.text, O_RDONLY);
    if (fd == BS_NOT_REGULAR) {
        bs_events_log(r->binlog->events, BS_ERROR, "%s:0: unreadable file: %s; it stays where it is", name.text,
                      bs_open_error(fd));
        return 0;
    }
    if (fd == -ENOENT && r->follows)
        return 0; /* its jobs have ended, or are in later files */
    if (fd < 0) {
        r->binlog->unopened = name;
        return fd;
    }
    int begun = begin_opened(r, name.text, fd, length);
    if (begun != 1) {
        (void)close(fd);
        r->scan.fd = -1;
    }
    return begun;
}

int bs_recovery_read_file(bs_recovery *r, uint32_t number, uint64_t length)
{
    r->partial = length != UINT64_MAX;
    const bool begun = r->scan.fd >= 0 && r->number == number;
    int result = begun ? bs_scan_extend(&r->scan, length) : begin_file(r, number, length);
    if (result == 1 || (begun && result == 0))
        result = read_entries(r);
    if (result < 0 || r->partial)
        return result;
    if (r->scan.fd >= 0) {
        if (!r->follows)
            truncate_zeros(r, bs_name_of_file(number, "").text);
        (void)close(r->scan.fd);
        r->scan.fd = -1;
    }
    r->next = number + 1;
    return 0;
}
