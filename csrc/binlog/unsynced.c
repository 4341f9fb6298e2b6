/* Files that may not be on disk although they can be read, and how a start makes them durable before it reads them.
 *
 * A killed process leaves pages that were written and never synced. After a failed fdatasync the kernel may even mark
 * such pages clean, so that a later sync succeeds and writes nothing. A server therefore keeps a line in the file
 * `lock`: the number of the first file that may not be on disk, and the id of the boot, because no unsynced page
 * survives a boot. The next start of the same boot copies those files into new ones and syncs these; it only syncs the
 * others. The line itself is never synced, because it is needed only as long as the page cache lives.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "binlog/binlog_private.h"
#include "binlog_files/scan.h"

enum { PIECE = 1 << 20, LINE = 80, UNREADABLE = 1 };

/* All lines have one length, so that a line replaces the previous one without needing disk space. */
#define UNSYNCED_FROM "unsynced from binlog.%-10" PRIu32 " boot %36s"
#define ALL_SYNCED "everything is synced"

static void write_line(bs_binlog *binlog, const char *text)
{
    char line[LINE + 1];
    (void)snprintf(line, sizeof line, "%-*s\n", LINE - 1, text);
    int error = bs_io_write_all(BS_IO_NOTE, binlog->lock_fd, line, LINE, 0);
    if (error && !binlog->unsynced_unwritable)
        bs_events_log(binlog->events, BS_WARNING,
                      "cannot write to the lock file of the binlog: %s; a start after a failed sync will trust files "
                      "that may not be on disk",
                      strerror(-error));
    binlog->unsynced_unwritable = error != 0;
}

/* Returns the first file that may not be on disk, if a server of this boot recorded one; else UINT32_MAX. */
static uint32_t read_line(const bs_binlog *binlog)
{
    char line[LINE + 1] = "";
    char recorded[BS_BOOT_CHARS + 1];
    uint32_t number;
    ssize_t length = pread(binlog->lock_fd, line, LINE, 0); /* treats an unreadable line as missing */
    if (length != LINE || sscanf(line, "unsynced from binlog.%" SCNu32 " boot %36s", &number, recorded) != 2)
        return UINT32_MAX;
    return strcmp(recorded, binlog->boot.id) == 0 ? number : UINT32_MAX;
}

void bs_unsynced_from(bs_binlog *binlog, uint32_t number)
{
    char text[LINE];
    if (binlog->unsynced_from == number)
        return;
    binlog->unsynced_from = number;
    (void)snprintf(text, sizeof text, UNSYNCED_FROM, number, binlog->boot.id);
    write_line(binlog, text);
}

void bs_unsynced_none(bs_binlog *binlog)
{
    binlog->unsynced_from = 0;
    write_line(binlog, ALL_SYNCED);
}

/* Copies the data in the first `end` bytes, without holes, and syncs them. Returns 0, a negative errno, or UNREADABLE.
 */
static int copy(int from, int to, int64_t end, char *piece)
{
    int error = 0;
    for (int64_t at = 0; !error && (at = lseek(from, at, SEEK_DATA)) >= 0 && at < end;) {
        ssize_t got = bs_io_read(from, piece, PIECE, at);
        if (got <= 0)
            return UNREADABLE;
        size_t length = got < end - at ? (size_t)got : (size_t)(end - at);
        error = bs_io_write_all(BS_IO_WRITE, to, piece, length, at);
        at += (int64_t)length;
    }
    return error ? error : bs_io_sync(to);
}

/* Ignores EPERM, because only root may change the owner. */
static int copy_owner(int to, const struct stat *status)
{
    if (fchown(to, status->st_uid, status->st_gid) != 0 && errno != EPERM)
        return -errno;
    return fchmod(to, status->st_mode & 07777U) != 0 ? -errno : 0;
}

/* Replaces the file by a synced copy. Returns 0 or a negative errno. */
static int replace_by_copy(const bs_binlog *binlog, uint32_t number, int fd, const struct stat *status, int64_t end,
                           char *piece)
{
    const bs_file_name unfinished = bs_name_of_file(number, ".new");
    int to = bs_create_file(binlog->dir_fd, unfinished.text);
    if (to < 0)
        return to;
    int error = copy_owner(to, status);
    if (!error) /* the zeros at its end may be a hole that is not copied */
        error = bs_io_truncate(to, end);
    if (!error)
        error = copy(fd, to, end, piece);
    if (!error)
        error = bs_io_rename(binlog->dir_fd, unfinished.text, bs_name_of_file(number, "").text);
    (void)close(to);
    if (error)
        (void)unlinkat(binlog->dir_fd, unfinished.text, 0); /* or the next start does it */
    return error;
}

/* Writes the same bytes to the same offsets, so that the pages are dirty again. Returns 0 or a negative errno. */
static int rewrite_in_place(const bs_binlog *binlog, uint32_t number, int fd, int64_t end, char *piece)
{
    int to = bs_open_binlog(binlog->dir_fd, number, O_RDWR);
    if (to < 0)
        return to;
    int error = copy(fd, to, end, piece);
    (void)close(to);
    return error;
}

/* Copies the file, because a new file gets other blocks than those that may have failed; on a full disk rewrites it in
 * place. Returns 0, a negative errno, or UNREADABLE if the disk does not return all of it. */
static int make_durable(const bs_binlog *binlog, uint32_t number, int fd, const struct stat *status, char *piece)
{
    int64_t end = bs_data_end(fd, (uint64_t)status->st_size);
    if (end < 0)
        return end == -ENOMEM ? -ENOMEM : UNREADABLE;
    if (end <= BS_ENTRY_HEADER) /* it has no entries, and its preallocation was synced */
        return 0;
    end += BS_ENTRY_SHORT; /* the last entry may end in zeros */
    if (end > status->st_size)
        end = status->st_size;
    int error = replace_by_copy(binlog, number, fd, status, end, piece);
    if (error == -ENOSPC || error == -EDQUOT)
        error = rewrite_in_place(binlog, number, fd, end, piece);
    return error;
}

/* Opens every file before the first is copied, because a start that fails must change nothing. Returns 0 or a negative
 * errno. */
static int check_opening(bs_binlog *binlog, const uint32_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int fd = bs_open_binlog(binlog->dir_fd, numbers[i], O_RDONLY);
        if (fd < 0 && fd != BS_NOT_REGULAR) {
            binlog->unopened = bs_name_of_file(numbers[i], "");
            return fd;
        }
        bs_close(fd);
    }
    return 0;
}

/* Ignores a file that is not regular, because recovery reports it. */
static int settle_file(const bs_binlog *binlog, uint32_t number, bool suspect, char *piece)
{
    struct stat status;
    int fd = bs_open_binlog(binlog->dir_fd, number, O_RDONLY);
    if (fd < 0)
        return fd == BS_NOT_REGULAR ? 0 : fd;
    int error = fstat(fd, &status) != 0 ? -errno : 0;
    /* The folder's owner could read a copy before it has the owner of the original. */
    const bool copies = !error && suspect && !bs_is_foreign_hard_link(binlog->dir_fd, &status);
    if (!error)
        error = copies ? make_durable(binlog, number, fd, &status, piece) : bs_io_datasync(fd);
    if (error == UNREADABLE) /* recovery reports the damage and uses the rest */
        error = bs_io_datasync(fd);
    (void)close(fd);
    return error;
}

/* Syncs the folder, and its name in the parent, which only root may be able to open. */
static int settle_folder(const bs_binlog *binlog)
{
    int error = bs_io_sync(binlog->dir_fd);
    int parent = error ? -1 : openat(binlog->dir_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return error;
    error = bs_io_sync(parent);
    (void)close(parent);
    return error;
}

static int fail(bs_binlog *binlog, const char *call, uint32_t number, int error)
{
    bs_binlog_fail(binlog, call, error);
    binlog->failed_file = number;
    return BS_ERR_BINLOG;
}

int bs_unsynced_settle(bs_binlog *binlog, const uint32_t *numbers, size_t count, bool is_copy)
{
    if (binlog->sync_interval_ns < 0)
        return 0; /* -F promises nothing, and the line stays valid for the files to come */
    int error = check_opening(binlog, numbers, count);
    if (error)
        return error;
    const uint32_t suspect = is_copy ? UINT32_MAX : read_line(binlog);
    char *piece = malloc(PIECE);
    if (!piece)
        return -ENOMEM;
    for (size_t i = 0; i < count && !error; i++) {
        /* Record it first, because a process that is killed in a sync cannot record the failure. */
        bs_unsynced_from(binlog, numbers[i]);
        error = settle_file(binlog, numbers[i], numbers[i] >= suspect, piece);
        if (error)
            error = fail(binlog, numbers[i] >= suspect ? "copy" : "sync", numbers[i], error);
    }
    free(piece);
    if (!error && (error = settle_folder(binlog)) != 0)
        error = fail(binlog, "sync", 0, error);
    if (!error && count > 0)
        bs_unsynced_from(binlog, numbers[count - 1] + 1);
    return error;
}
