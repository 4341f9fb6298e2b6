/* Length entries: later files record the lengths of earlier ones, so that a start notices files that became shorter.
 *
 * A file that was cut at the edge of an entry, or emptied, has no invalid entry. So the length of a complete file is
 * recorded (B7) by the file that follows it, by the first file of a start for all files it has read, C beanstalkd's
 * included, and by the small file that a stop writes behind the last one. The last file of a killed server has no
 * recorded length until the next start. With -F a recorded length is valid for the present boot only, because a power
 * cut can lose the end of the file and keep the entry with its length.
 *
 * A file whose number does not follow that of the file before it records that the file before its number ended after
 * the header: no such file existed, so none is missing.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "binlog/binlog_private.h"
#include "base/file_io.h"

void bs_lengths_check(const bs_binlog *binlog)
{
    for (uint32_t i = 0; i < binlog->file_count; i++) {
        bs_binlog_file *file = &binlog->files[i];
        if (file->length <= file->bytes || file->end_unreadable)
            continue;
        if (file->length_boot != 0 && file->length_boot != binlog->boot.number) {
            bs_events_log(binlog->events, BS_WARNING,
                          "binlog.%u:%" PRId64 ": entries are lost: they ended at %" PRId64
                          " when binlog.%u was written, but were never synced (-F), and this is another boot",
                          file->number, file->bytes, file->length, file->length_in);
            continue;
        }
        bs_events_log(binlog->events, BS_WARNING,
                      "binlog.%u:%" PRId64 ": the file is cut: its entries ended at %" PRId64
                      " when binlog.%u was written",
                      file->number, file->bytes, file->length, file->length_in);
        file->damaged = true;
        file->unused = 0;
    }
}

/* Returns whether the file has a recorded length that is still valid. A start that syncs replaces a length that is
 * valid for one boot. That of a damaged file is kept, because the present length would hide the damage. */
static bool is_length_valid(const bs_binlog *binlog, const bs_binlog_file *file)
{
    if (file->length_in == 0)
        return false;
    return file->damaged || file->length_boot == 0 ||
           (binlog->sync_interval_ns < 0 && file->length_boot == binlog->boot.number);
}

void bs_lengths_begin(bs_binlog *binlog)
{
    for (uint32_t i = 0; i < binlog->file_count; i++) {
        bs_binlog_file *file = &binlog->files[i];
        file->has_length = !file->used || is_length_valid(binlog, file);
        binlog->lengths_missing += !file->has_length;
    }
}

static bool can_record(const bs_binlog *binlog)
{
    if (binlog->lengths_missing == 0 || binlog->failed || binlog->file_failed)
        return false;
    return binlog->sync_interval_ns >= 0 || binlog->boot.number != 0;
}

/* Appends a length entry to the buffer, which has space for it. */
static void buffer_length(bs_binlog *binlog, bs_binlog_file *earlier, uint32_t in_file, bs_now now)
{
    const bs_entry_file_length length = {.file = earlier->number,
                                         .bytes = (uint64_t)earlier->bytes,
                                         .boot = binlog->sync_interval_ns < 0 ? binlog->boot.number : 0};
    char *space = bs_bytes_reserve(&binlog->buffer, BS_ENTRY_SHORT);
    bs_bytes_extend(&binlog->buffer, bs_entry_encode_length(space, bs_binlog_unused_id(binlog), &length, now.wall, in_file));
    earlier->has_length = true;
    binlog->lengths_missing--;
}

/* Appends a length entry to the current file. */
static void append_length(bs_binlog *binlog, bs_binlog_file *earlier, bs_now now)
{
    bs_binlog_file *file = bs_binlog_current_file(binlog);
    buffer_length(binlog, earlier, file->number, now);
    binlog->end += BS_ENTRY_SHORT;
    binlog->total += BS_ENTRY_SHORT;
    file->bytes = binlog->end;
}

/* A start numbers its files above all that were renamed to .bad or .done, because an archiver may still read those. No
 * file that existed has such a length: only files with entries have theirs recorded. */
void bs_lengths_append_gap(bs_binlog *binlog, bs_now now)
{
    const bs_binlog_file *file = bs_binlog_current_file(binlog);
    if (binlog->file_count < 2 || file[-1].number + 1 == file->number)
        return;
    /* A file of the usual size may use owed space, because the start requests more. On a full disk it is smaller. */
    const uint64_t owed = binlog->size < binlog->file_size ? binlog->owed : 0;
    if (!bs_space_in_current(binlog, BS_ENTRY_SHORT, owed) || !bs_bytes_reserve(&binlog->buffer, BS_ENTRY_SHORT))
        return; /* the next start reports missing files */
    bs_binlog_file none = {.number = file->number - 1, .bytes = BS_ENTRY_HEADER};
    binlog->lengths_missing++; /* append_length counts it as recorded */
    append_length(binlog, &none, now);
}

/* No reply waits for length entries, and they use no space that is owed. Without space they are written later. */
void bs_lengths_append(bs_binlog *binlog, bs_now now)
{
    if (!can_record(binlog))
        return;
    const bool durable = binlog->sync_interval_ns >= 0;
    uint32_t left = binlog->lengths_missing;
    uint32_t needed = 0; /* the files before it have no job and are about to be removed */
    while (needed + 1 < binlog->file_count && binlog->files[needed].jobs == 0)
        needed++;
    for (uint32_t i = binlog->file_count - 1; left > 0 && i > needed; i--) {
        bs_binlog_file *file = &binlog->files[i - 1];
        if (file->has_length)
            continue;
        left--;
        if (durable && file->complete_gen > binlog->synced) /* B7 */
            continue;
        if (!bs_space_in_current(binlog, BS_ENTRY_SHORT, binlog->owed) ||
            !bs_bytes_reserve(&binlog->buffer, BS_ENTRY_SHORT))
            return;
        append_length(binlog, file, now);
    }
}

/* Writes the buffer to a new file. Returns 0 or a negative errno. */
static int write_file(const bs_binlog *binlog, int fd)
{
    const size_t length = bs_bytes_length(&binlog->buffer);
    int error = bs_io_write_all(BS_IO_WRITE, fd, bs_bytes_data(&binlog->buffer), length, BS_ENTRY_HEADER);
    if (!error)
        error = bs_io_truncate(fd, BS_ENTRY_HEADER + (off_t)length);
    return !error && binlog->sync_interval_ns >= 0 ? bs_io_datasync(fd) : error;
}

bool bs_lengths_finish(bs_binlog *binlog, bs_now now)
{
    assert(bs_bytes_length(&binlog->buffer) == 0);
    bs_binlog_file *last = bs_binlog_current_file(binlog);
    last->has_length = !last->used;
    binlog->lengths_missing += last->used;
    if (!can_record(binlog))
        return false;
    if (binlog->ready_count == 0 && binlog->files_requested > 0)
        (void)bs_space_take(binlog, true, now);
    if (binlog->ready_count == 0 || binlog->file_failed)
        return false; /* the disk is full */
    const bs_preallocated *ready = &binlog->ready[0];
    int64_t end = BS_ENTRY_HEADER;
    for (uint32_t i = binlog->file_count; i > 0 && end + BS_ENTRY_SHORT <= ready->size; i--) {
        bs_binlog_file *file = &binlog->files[i - 1];
        if (file->has_length)
            continue;
        if (!bs_bytes_reserve(&binlog->buffer, BS_ENTRY_SHORT))
            break;
        buffer_length(binlog, file, ready->number, now);
        end += BS_ENTRY_SHORT;
    }
    const int error = write_file(binlog, ready->fd);
    if (error)
        bs_events_log(binlog->events, BS_WARNING,
                      "cannot write binlog.%u with the length of binlog.%u: %s", ready->number, last->number,
                      strerror(-error));
    return !error;
}
