/* Writes the live jobs of a reader to new files, one full entry each; the interface is in api/reader.h.
 *
 * The files are read again, and a job is written when its last entry comes. So jobs are in the order of their last
 * events, from which C beanstalkd restores the order of buried jobs.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file_io.h"
#include "binlog_files/entry.h"
#include "binlog_files/file_writer.h"
#include "binlog_files/reader.h"
#include "jobs/unique_keys.h"

struct bs_rewrite {
    bs_reader *from;
    bs_file_writer to;
    int64_t log_time;
    uint32_t file;  /* index of the file being read */
    uint64_t fault; /* index of the next range to skip */
    bool open;      /* from->scan is at that file */
    uint64_t offset;
    bs_rewrite_stats stats;
};

int bs_rewrite_new(bs_reader *from, const char *folder, uint32_t first, const char *suffix, int64_t file_size,
                   int64_t wall, bs_rewrite **created)
{
    bs_rewrite *rewrite = calloc(1, sizeof *rewrite);
    if (!rewrite)
        return -ENOMEM;
    rewrite->from = from;
    int error = bs_file_writer_init(&rewrite->to, folder, first - 1, suffix, file_size);
    rewrite->to.wall = wall;
    rewrite->to.unused_id = from->highest_id + 1;
    /* Ids must continue above the highest one. A reader deletes the job that this entry names, so the entry is left out
     * if a job has that id. */
    bs_spot spot;
    if (!error && from->highest_id != 0 && !bs_index_get(&from->index, from->highest_id, &spot))
        error = bs_file_writer_append_last_id(&rewrite->to, from->highest_id);
    if (error)
        bs_rewrite_free(rewrite);
    else
        *created = rewrite;
    return error;
}

void bs_rewrite_free(bs_rewrite *rewrite)
{
    if (!rewrite)
        return;
    bs_file_writer_free(&rewrite->to);
    free(rewrite);
}

const bs_rewrite_stats *bs_rewrite_progress(bs_rewrite *rewrite)
{
    rewrite->stats.bytes = rewrite->to.bytes;
    rewrite->stats.files = rewrite->to.files;
    return &rewrite->stats;
}

/* Adds the body of an entry piece by piece to the checksum or to the new file. Returns 0 or a negative errno. */
static int each_piece(bs_rewrite *rewrite, bs_scan *scan, uint64_t offset, uint64_t length, uint32_t *sum)
{
    while (length > 0) {
        size_t got;
        int error;
        const char *data = bs_scan_fetch(scan, offset, length < BS_FULL_WINDOW ? length : BS_FULL_WINDOW,
                                         &got, &error);
        if (!data || got == 0)
            return error ? error : -ESTALE;
        size_t piece = got < length ? got : (size_t)length;
        if (sum)
            *sum = bs_crc32c(*sum, data, piece);
        else if ((error = bs_file_writer_append(&rewrite->to, data, piece)) != 0)
            return error;
        offset += piece;
        length -= piece;
    }
    return 0;
}

/* Combines a job's full entry with its last entry. */
static bs_entry merged(const bs_entry *full, const bs_entry *last, int64_t at)
{
    bs_entry entry = *last;
    entry.name = full->name;
    entry.name_length = full->name_length;
    entry.body_size = full->body_size;
    entry.at = at;
    if (entry.state == BS_RESERVED) { /* a reader treats it as ready, and then `at` is no deadline */
        int64_t event = bs_entry_event_at(last);
        entry.at = event >= 0 ? event : entry.created_at;
        entry.state = BS_READY;
    }
    return entry;
}

/* Appends an attribute entry. Returns 0 or a negative errno. */
static int write_attributes(bs_file_writer *to, const bs_entry_attributes *attributes)
{
    char entry[BS_ENTRY_SHORT];
    return bs_file_writer_append(
        to, entry, bs_entry_encode_attributes(entry, to->unused_id, attributes, to->wall, to->number));
}

/* Writes a job whose full entry `scan` has at `offset`; `attributes` is NULL if it has none. */
static int write_job(bs_rewrite *rewrite, bs_scan *scan, uint64_t offset, const bs_entry *full, const bs_entry *entry,
                     const bs_entry_attributes *attributes)
{
    char head[BS_ENTRY_HEAD_MAX];
    uint64_t size = BS_ENTRY_SHORT + (uint64_t)entry->name_length + entry->body_size;
    if (attributes)
        size += BS_ENTRY_SHORT;
    uint64_t body_at = offset + full->head;
    bs_file_writer *to = &rewrite->to;
    int error = bs_file_writer_begin_entry(to, (int64_t)size);
    if (!error && attributes)
        error = write_attributes(to, attributes);
    if (error)
        return error;
    size_t head_size = bs_entry_encode_head(head, entry, to->number);
    uint32_t sum = bs_crc32c(0, head, head_size);
    error = each_piece(rewrite, scan, body_at, entry->body_size, &sum);
    bs_entry_seal_head(head, head_size, sum);
    if (!error)
        error = bs_file_writer_append(to, head, head_size);
    if (!error)
        error = each_piece(rewrite, scan, body_at, entry->body_size, NULL);
    rewrite->stats.jobs++;
    return error;
}

/* Returns whether an entry that was valid at the first reading is damaged now. */
static bool has_rotted(const bs_entry *entry, const bs_read_file *file)
{
    return entry->marked && entry->tag == (uint16_t)file->number && !entry->sound;
}

/* Writes the entry of an ended key unless its time is over. */
static int write_key(bs_rewrite *rewrite, const bs_entry_attributes *ended)
{
    if (bs_ended_is_over(ended->until, rewrite->to.wall))
        return 0;
    const int error = bs_file_writer_begin_entry(&rewrite->to, BS_ENTRY_SHORT);
    return error ? error : write_attributes(&rewrite->to, ended);
}

/* Writes the job of this entry if it is the job's last one. */
static int write_if_last(bs_rewrite *rewrite, uint64_t position, const bs_entry *last)
{
    bs_reader *from = rewrite->from;
    bs_spot spot;
    if (last->attributes.until)
        return write_key(rewrite, &last->attributes);
    if (last->state == BS_INVALID)
        return 0;
    int64_t at = bs_entry_at(last, &rewrite->log_time);
    if (!bs_index_get(&from->index, last->id, &spot) || (spot.last_short ? spot.last_short : spot.full) != position)
        return 0;
    bs_entry_attributes attributes;
    const int found = bs_reader_attributes_before(from, spot.full, &attributes);
    if (found < 0)
        return found;
    const bs_read_file *file = &from->files[rewrite->file];
    if (!spot.last_short) {
        bs_entry entry = merged(last, last, at);
        return write_job(rewrite, &from->scan, position - file->base, last, &entry, found ? &attributes : NULL);
    }
    bs_entry full;
    const bs_read_file *there = bs_reader_file_at(from, spot.full);
    bs_scan *scan;
    int error = bs_reader_entry_at(from, spot.full, &full, &scan);
    if (error)
        return error;
    if (full.id != last->id || !full.name || has_rotted(&full, there))
        return -ESTALE;
    bs_entry entry = merged(&full, last, at);
    return write_job(rewrite, scan, spot.full - there->base, &full, &entry, found ? &attributes : NULL);
}

static int open_file(bs_rewrite *rewrite)
{
    bs_reader *from = rewrite->from;
    const bs_read_file *file = &from->files[rewrite->file];
    bs_close(from->fd);
    from->fd = bs_open_binlog(from->dir_fd, file->number, O_RDONLY);
    if (from->fd < 0)
        return from->fd;
    int kind = bs_scan_file(&from->scan, from->fd, file->number, UINT64_MAX);
    if (kind != BS_SCAN_FILE)
        return kind < 0 ? kind : -ESTALE;
    rewrite->open = true;
    rewrite->offset = BS_ENTRY_HEADER;
    return 0;
}

/* Reads one entry, skips a range, or goes to the next file. Returns 0 or a negative errno. */
static int step(bs_rewrite *rewrite)
{
    bs_reader *from = rewrite->from;
    const bs_read_file *file = &from->files[rewrite->file];
    int error = rewrite->open ? 0 : open_file(rewrite);
    if (error)
        return error;
    uint64_t position = file->base + rewrite->offset;
    if (rewrite->fault < from->fault_count && from->faults[rewrite->fault].at == position) {
        rewrite->offset = from->faults[rewrite->fault++].next - file->base;
        return 0;
    }
    if (rewrite->offset >= file->end) {
        rewrite->open = false;
        rewrite->file++;
        return 0;
    }
    bs_entry entry;
    int64_t size = bs_scan_check(&from->scan, rewrite->offset, &entry, &error);
    if (size <= 0 || error)
        return error ? error : -ESTALE;
    if (has_rotted(&entry, file))
        return -ESTALE;
    rewrite->offset += (uint64_t)size;
    rewrite->stats.read += (uint64_t)size;
    return write_if_last(rewrite, position, &entry);
}

int bs_rewrite_run(bs_rewrite *rewrite, uint64_t budget)
{
    uint64_t until = rewrite->stats.read + budget;
    while (rewrite->file < rewrite->from->file_count) {
        if (rewrite->stats.read >= until)
            return 1;
        int error = step(rewrite);
        if (error)
            return error;
    }
    return bs_file_writer_finish(&rewrite->to);
}
