#include "binlog_files/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file_io.h"
#include "base/folder.h"

enum { TEXT_ENOUGH = 256 * 1024, SHORT_5 = 85 };

_Static_assert((int)BS_FILE_EMPTY == (int)BS_SCAN_EMPTY && (int)BS_FILE_ENTRIES == (int)BS_SCAN_FILE &&
                   (int)BS_FILE_VERSION == (int)BS_SCAN_VERSION,
               "callers get the values of bs_scan_file");

/* --- single entries --------------------------------------------------------------------------------- */

const bs_read_file *bs_reader_file_at(const bs_reader *reader, uint64_t position)
{
    uint32_t low = 0;
    uint32_t high = reader->file_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (reader->files[middle].base <= position)
            low = middle;
        else
            high = middle;
    }
    return &reader->files[low];
}

int bs_reader_entry_at(bs_reader *reader, uint64_t position, bs_entry *entry, bs_scan **scan)
{
    const bs_read_file *file = bs_reader_file_at(reader, position);
    int error;
    *scan = bs_full_entries_scan(&reader->fulls, reader->dir_fd, 0, file->number, UINT64_MAX, &error);
    if (!*scan)
        return error;
    int64_t size = bs_scan_check(*scan, position - file->base, entry, &error);
    return !error && size <= 0 ? -ESTALE : error;
}

/* Returns whether an attribute entry for the full entry at this position was read before it. */
static bool has_attributes_before(const bs_reader *reader, uint64_t position)
{
    uint64_t low = 0;
    uint64_t high = reader->attribute_count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (reader->attributes[middle] + BS_ENTRY_SHORT < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low < reader->attribute_count && reader->attributes[low] + BS_ENTRY_SHORT == position;
}

int bs_reader_attributes_before(bs_reader *reader, uint64_t position, bs_entry_attributes *attributes)
{
    bs_entry entry;
    bs_scan *scan;
    if (!has_attributes_before(reader, position))
        return 0;
    const int error = bs_reader_entry_at(reader, position - BS_ENTRY_SHORT, &entry, &scan);
    if (error)
        return error;
    *attributes = entry.attributes;
    return bs_entry_has_attributes(&entry) ? 1 : -ESTALE;
}

static bool find_job(void *context, uint64_t id, bool last, bs_entry *entry)
{
    bs_reader *reader = context;
    bs_spot spot;
    bs_scan *scan;
    if (!bs_index_get(&reader->index, id, &spot))
        return false;
    if (!last && spot.body_size != BS_INDEX_LARGE && spot.tube < reader->names.count) {
        const bs_name *tube = &reader->names.names[spot.tube];
        *entry = (bs_entry){.name = tube->name, .name_length = tube->length, .body_size = spot.body_size};
        return true;
    }
    return bs_reader_entry_at(reader, last && spot.last_short ? spot.last_short : spot.full, entry, &scan) == 0;
}

/* --- printing --------------------------------------------------------------------------------------- */

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int bs_reader_print(bs_reader *reader, const bs_print *print)
{
    reader->selection = *print;
    reader->dump = calloc(1, sizeof *reader->dump);
    reader->ids = calloc(print->id_count + 1, sizeof *reader->ids);
    if (!reader->dump || !reader->ids)
        return -ENOMEM;
    if (print->id_count > 0)
        memcpy(reader->ids, print->ids, print->id_count * sizeof *reader->ids);
    qsort(reader->ids, print->id_count, sizeof *reader->ids, compare_ids);
    for (size_t i = 0; i < print->tube_count; i++) {
        const char *name = print->tubes[i];
        if (bs_names_number(&reader->tubes, name, (uint32_t)strlen(name), UINT32_MAX) < 0)
            return -ENOMEM;
    }
    return 0;
}

const char *bs_reader_text(bs_reader *reader, size_t *length)
{
    *length = reader->dump ? bs_bytes_length(&reader->dump->out) : 0;
    return *length ? bs_bytes_data(&reader->dump->out) : NULL;
}

static bool is_selected(const bs_reader *reader, const bs_entry *entry)
{
    const bs_print *selection = &reader->selection;
    if (!(selection->states >> entry->state & 1))
        return false;
    if (selection->id_count > 0 &&
        !bsearch(&entry->id, reader->ids, selection->id_count, sizeof entry->id, compare_ids))
        return false;
    int64_t event = bs_entry_event_at(entry);
    int64_t time = event >= 0 ? event : reader->log_time;
    return time >= selection->since && time < selection->until;
}

static bool is_tube_selected(const bs_reader *reader, const bs_dump_row *row)
{
    for (uint32_t i = 0; i < reader->tubes.count; i++) {
        const bs_name *name = &reader->tubes.names[i];
        if (row->tube && name->length == row->tube_length && memcmp(name->name, row->tube, name->length) == 0)
            return true;
    }
    return reader->tubes.count == 0;
}

/* Sets the tube of the row; a short entry has that of its job, if there is one. */
static void find_tube(bs_reader *reader, const bs_spot *spot, bs_dump_row *row)
{
    bs_entry full;
    bs_scan *scan;
    if (row->entry->name) {
        row->tube = row->entry->name;
        row->tube_length = row->entry->name_length;
    } else if (spot->full && spot->tube < reader->names.count) {
        row->tube = reader->names.names[spot->tube].name;
        row->tube_length = reader->names.names[spot->tube].length;
    } else if (spot->full && bs_reader_entry_at(reader, spot->full, &full, &scan) == 0) {
        row->tube = full.name;
        row->tube_length = full.name_length;
    }
}

static int print(bs_reader *reader, const bs_spot *spot)
{
    const bs_entry *entry = &reader->scan.entry;
    if (!is_selected(reader, entry))
        return 0;
    bs_dump_row row = {.file = reader->label, .offset = reader->scan.at, .entry = entry};
    find_tube(reader, spot, &row);
    if (!is_tube_selected(reader, &row))
        return 0;
    return reader->selection.json ? bs_dump_json(reader->dump, &row) : bs_dump_columns(reader->dump, &row);
}

/* --- entries ---------------------------------------------------------------------------------------- */

/* Records the length of an earlier file. Returns 0 or -ENOMEM. */
static int add_length(bs_reader *reader, const bs_entry *entry)
{
    reader->facts.lengths++;
    if (entry->length_of >= reader->facts.number)
        return 0;
    bs_read_length *lengths =
        bs_grow(reader->lengths, reader->length_count, &reader->length_capacity, sizeof *lengths);
    if (!lengths)
        return -ENOMEM;
    reader->lengths = lengths;
    lengths[reader->length_count++] = (bs_read_length){
        .number = entry->length_of,
        .stated_in = reader->facts.number,
        .length = entry->length,
        .outdated = entry->length_boot != 0 && entry->length_boot != reader->boot.number,
    };
    return 0;
}

int bs_reader_length(const bs_reader *reader, uint64_t index, bs_read_length *length)
{
    if (index >= reader->length_count)
        return 0;
    *length = reader->lengths[index];
    return 1;
}

/* Remembers an attribute entry that precedes the full entry of its job. Returns 0 or -ENOMEM. */
static int add_attributes(bs_reader *reader, const bs_entry *entry, uint64_t position)
{
    if (reader->attributes_of != entry->id || reader->attributes_at + BS_ENTRY_SHORT != position)
        return 0;
    uint64_t *grown =
        bs_grow(reader->attributes, reader->attribute_count, &reader->attribute_capacity, sizeof *grown);
    if (!grown)
        return -ENOMEM;
    reader->attributes = grown;
    grown[reader->attribute_count++] = reader->attributes_at;
    reader->facts.attributes++;
    return 0;
}

/* Returns 0 or -ENOMEM. */
static int apply_entry(bs_reader *reader)
{
    const bs_entry *entry = &reader->scan.entry;
    bs_spot spot = {0};
    (void)bs_index_get(&reader->index, entry->id, &spot);
    if (entry->state != BS_INVALID || entry->sound)
        (void)bs_entry_at(entry, &reader->log_time);
    if (entry->name_length > 0)
        reader->facts.full_entries++;
    else
        reader->facts.short_entries++;
    int error = reader->dump ? print(reader, &spot) : 0;
    if (error)
        return error;
    if (entry->length_of)
        return add_length(reader, entry);
    const uint64_t position = reader->files[reader->file_count - 1].base + reader->scan.at;
    if (entry->attributes.until) {
        reader->facts.attributes++;
        return 0;
    }
    if (entry->attributes.job) {
        reader->attributes_at = position;
        reader->attributes_of = entry->attributes.job;
        return 0;
    }
    if (entry->id > reader->highest_id && (entry->name_length > 0 || entry->sound))
        reader->highest_id = entry->id;
    int64_t tube = 0;
    if (entry->name_length > 0)
        tube = bs_names_number(&reader->names, entry->name, entry->name_length, BS_INDEX_MANY);
    if (tube < 0)
        return (int)tube;
    if (entry->name_length > 0)
        error = add_attributes(reader, entry, position);
    return error ? error : bs_index_apply(&reader->index, &spot, entry, position, (uint32_t)tube);
}

/* --- files ------------------------------------------------------------------------------------------ */

int bs_reader_new(const char *folder, int width, bs_reader **created)
{
    bs_reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return -ENOMEM;
    reader->fd = reader->scan.fd = -1;
    reader->boot = bs_boot_read();
    bs_index_init(&reader->index, (size_t)width);
    reader->dir_fd = bs_open_folder(folder);
    int error = bs_full_entries_init(&reader->fulls);
    if (!error)
        error = bs_scan_init(&reader->scan, BS_READ_WINDOW);
    if (!error && reader->dir_fd < 0)
        error = reader->dir_fd;
    if (error) {
        bs_reader_free(reader);
        return error;
    }
    reader->scan.find_job = find_job;
    reader->scan.context = reader;
    *created = reader;
    return 0;
}

static void close_file(bs_reader *reader)
{
    bs_close(reader->fd);
    reader->fd = -1;
}

void bs_reader_free(bs_reader *reader)
{
    if (!reader)
        return;
    close_file(reader);
    bs_close(reader->dir_fd);
    if (reader->dump)
        bs_bytes_free(&reader->dump->out);
    bs_scan_free(&reader->scan);
    bs_full_entries_free(&reader->fulls);
    bs_index_free(&reader->index);
    bs_names_free(&reader->names);
    bs_names_free(&reader->tubes);
    free(reader->dump);
    free(reader->label);
    free(reader->ids);
    free(reader->files);
    free(reader->faults);
    free(reader->lengths);
    free(reader->attributes);
    free(reader);
}

static int add_file(bs_reader *reader, uint32_t number)
{
    bs_read_file *files = bs_grow(reader->files, reader->file_count, &reader->file_capacity, sizeof *files);
    if (!files)
        return -ENOMEM;
    reader->files = files;
    if (reader->index.width < 8 && (reader->base + reader->scan.length) >> (8 * reader->index.width) != 0)
        return -EFBIG;
    files[reader->file_count++] = (bs_read_file){.number = number,
                                                 .version = reader->scan.version,
                                                 .base = reader->base,
                                                 .end = BS_ENTRY_HEADER};
    return 0;
}

int bs_reader_open(bs_reader *reader, uint32_t number, const char *label)
{
    char *copy = strdup(label);
    if (!copy)
        return -ENOMEM;
    free(reader->label);
    reader->label = copy;
    if (reader->fd >= 0)
        reader->base += reader->scan.length;
    close_file(reader);
    reader->facts = (bs_read_facts){.number = number};
    int fd = bs_open_binlog(reader->dir_fd, number, O_RDONLY);
    if (fd < 0)
        return fd;
    int kind = bs_scan_file(&reader->scan, fd, number, UINT64_MAX);
    int error = kind == BS_FILE_ENTRIES ? add_file(reader, number) : 0;
    if (kind != BS_FILE_ENTRIES || error) {
        (void)close(fd);
        return error ? error : kind;
    }
    reader->fd = fd;
    return kind;
}

int bs_reader_refresh(bs_reader *reader)
{
    bs_full_entries_close(&reader->fulls, 0, reader->facts.number); /* its window may be outdated */
    return bs_scan_refresh(&reader->scan);
}

/* Reads on until a fault, the end of the file or of the budget. Returns a BS_READ_ value or -ENOMEM. */
static int read_entries(bs_reader *reader, uint64_t budget)
{
    uint64_t until = reader->scan.offset + budget;
    while (reader->scan.offset < until && (!reader->dump || reader->dump->out.end < TEXT_ENOUGH)) {
        int scanned = bs_scan_next(&reader->scan);
        if (scanned == -ENOMEM)
            return scanned;
        if (scanned < 0)
            bs_scan_set_unreadable(&reader->scan, scanned);
        if (scanned < 0 || scanned == BS_SCAN_FAULT)
            return BS_READ_FAULT;
        if (scanned == BS_SCAN_END)
            return BS_READ_END;
        int error = apply_entry(reader);
        if (error)
            return error;
    }
    return BS_READ_MORE;
}

int bs_reader_run(bs_reader *reader, uint64_t budget)
{
    if (reader->dump)
        bs_bytes_clear(&reader->dump->out);
    if (reader->fd < 0)
        return BS_READ_END;
    int result = read_entries(reader, budget);
    reader->files[reader->file_count - 1].end = reader->scan.end;
    return result;
}

int bs_reader_skip_fault(bs_reader *reader)
{
    bs_read_fault *faults = bs_grow(reader->faults, reader->fault_count, &reader->fault_capacity, sizeof *faults);
    if (!faults)
        return -ENOMEM;
    reader->faults = faults;
    uint64_t base = reader->files[reader->file_count - 1].base;
    faults[reader->fault_count++] = (bs_read_fault){base + reader->scan.at, base + reader->scan.next};
    bs_scan_skip(&reader->scan);
    reader->files[reader->file_count - 1].end = reader->scan.end;
    return 0;
}

/* --- live jobs -------------------------------------------------------------------------------------- */

void bs_reader_forget(bs_reader *reader)
{
    bs_index_free(&reader->index);
}

static int tally_job(void *context, uint64_t id, const bs_spot *spot)
{
    bs_reader *reader = context;
    (void)id;
    bs_read_file *file = &reader->files[bs_reader_file_at(reader, spot->full) - reader->files];
    uint64_t size = (uint64_t)(file->version == BS_VERSION ? BS_ENTRY_SHORT : SHORT_5) + spot->body_size;
    bs_entry entry;
    bs_scan *scan;
    if (spot->body_size != BS_INDEX_LARGE && spot->tube < reader->names.count)
        size += reader->names.names[spot->tube].length;
    else if (bs_reader_entry_at(reader, spot->full, &entry, &scan) == 0)
        size = entry.size;
    if (has_attributes_before(reader, spot->full))
        size += BS_ENTRY_SHORT;
    file->usage.jobs++;
    file->usage.live_bytes += size;
    if (spot->last_short) {
        file = &reader->files[bs_reader_file_at(reader, spot->last_short) - reader->files];
        file->usage.live_bytes += file->version == BS_VERSION ? BS_ENTRY_SHORT : SHORT_5;
    }
    return 0;
}

void bs_reader_tally(bs_reader *reader)
{
    for (uint32_t i = 0; i < reader->file_count; i++)
        reader->files[i].usage = (bs_file_usage){.number = reader->files[i].number};
    (void)bs_index_each(&reader->index, tally_job, reader); /* tally_job does not fail */
}

int bs_reader_usage(const bs_reader *reader, uint32_t index, bs_file_usage *usage)
{
    if (index >= reader->file_count)
        return 0;
    *usage = reader->files[index].usage;
    return 1;
}

const bs_read_facts *bs_reader_facts(bs_reader *reader)
{
    const bs_scan *scan = &reader->scan;
    bs_read_facts *facts = &reader->facts;
    facts->version = scan->version;
    facts->size = scan->length;
    facts->offset = scan->offset;
    facts->end = scan->end;
    facts->at = scan->at;
    facts->next = scan->next;
    facts->torn = scan->torn;
    facts->fault = scan->fault;
    return facts;
}

uint64_t bs_reader_jobs(const bs_reader *reader)
{
    return reader->index.count;
}
