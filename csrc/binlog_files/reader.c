#include "binlog_files/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/folder.h"

enum { NAME_BYTES = 32, TEXT_ENOUGH = 256 * 1024, SHORT_5 = 85 };

_Static_assert((int)BS_FILE_EMPTY == (int)BS_SCAN_EMPTY && (int)BS_FILE_ENTRIES == (int)BS_SCAN_FILE &&
                   (int)BS_FILE_VERSION == (int)BS_SCAN_VERSION,
               "one set of numbers");

/* --- single entries --------------------------------------------------------------------------------- */

static int open_number(const bs_reader *reader, uint32_t number)
{
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "binlog.%u", number);
    return bs_open_regular(reader->dir_fd, name, O_RDONLY);
}

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

/* Points the side window at this file. Returns 0 or a negative errno. */
static int turn_side_to(bs_reader *reader, const bs_read_file *file)
{
    if (reader->side.fd >= 0 && reader->side.number == file->number)
        return 0;
    size_t slot = file->number % BS_READ_SIDE_FILES;
    if (reader->side_fds[slot] < 0 || reader->side_numbers[slot] != file->number) {
        if (reader->side_fds[slot] >= 0)
            (void)close(reader->side_fds[slot]);
        reader->side_fds[slot] = open_number(reader, file->number);
        reader->side_numbers[slot] = file->number;
    }
    reader->side.fd = -1;
    if (reader->side_fds[slot] < 0)
        return reader->side_fds[slot];
    int kind = bs_scan_file(&reader->side, reader->side_fds[slot], file->number);
    if (kind < 0)
        reader->side.fd = -1;
    return kind < 0 ? kind : 0;
}

int bs_reader_entry_at(bs_reader *reader, uint64_t position, bs_entry *entry)
{
    const bs_read_file *file = bs_reader_file_at(reader, position);
    int error = turn_side_to(reader, file);
    if (error)
        return error;
    int64_t size = bs_scan_check(&reader->side, position - file->base, entry, &error);
    return !error && size <= 0 ? -ESTALE : error;
}

/* --- callbacks of the scan --------------------------------------------------------------------------- */

static bool find_job(void *context, uint64_t id, bs_scan_job *job)
{
    bs_reader *reader = context;
    bs_spot spot;
    if (!bs_index_get(&reader->index, id, &spot))
        return false;
    if (spot.body_size != BS_INDEX_LARGE && spot.tube < reader->names.count) {
        const bs_name *tube = &reader->names.names[spot.tube];
        *job = (bs_scan_job){tube->name, tube->length, spot.body_size};
        return true;
    }
    bs_entry entry;
    if (bs_reader_entry_at(reader, spot.full, &entry) != 0)
        return false;
    *job = (bs_scan_job){entry.name, entry.name_length, entry.body_size};
    return true;
}

static bool last_crc_of(void *context, uint64_t id, uint32_t *crc)
{
    bs_reader *reader = context;
    bs_spot spot;
    bs_entry entry;
    if (!bs_index_get(&reader->index, id, &spot) ||
        bs_reader_entry_at(reader, spot.last_short ? spot.last_short : spot.full, &entry) != 0)
        return false;
    *crc = entry.crc;
    return true;
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
    reader->dump = calloc(1, sizeof *reader->dump);
    reader->ids = calloc(print->id_count + 1, sizeof *reader->ids);
    if (!reader->dump || !reader->ids)
        return -ENOMEM;
    if (print->id_count > 0)
        memcpy(reader->ids, print->ids, print->id_count * sizeof *reader->ids);
    qsort(reader->ids, print->id_count, sizeof *reader->ids, compare_ids);
    reader->id_count = print->id_count;
    for (size_t i = 0; i < print->tube_count; i++) {
        const char *name = print->tubes[i];
        if (bs_names_number(&reader->tubes, name, (uint32_t)strlen(name), UINT32_MAX) < 0)
            return -ENOMEM;
    }
    reader->some_ids = print->id_count > 0;
    reader->some_tubes = print->tube_count > 0;
    reader->json = print->json != 0;
    reader->states = print->states;
    reader->since = print->since;
    reader->until = print->until;
    return 0;
}

const char *bs_reader_text(bs_reader *reader, size_t *length)
{
    *length = reader->dump ? bs_bytes_length(&reader->dump->out) : 0;
    return *length ? bs_bytes_data(&reader->dump->out) : NULL;
}

static bool wanted(bs_reader *reader, const bs_entry *entry)
{
    if (!(reader->states >> entry->state & 1))
        return false;
    if (reader->some_ids && !bsearch(&entry->id, reader->ids, reader->id_count, sizeof entry->id, compare_ids))
        return false;
    int64_t event = bs_entry_event(entry);
    int64_t time = event >= 0 ? event : reader->log_time;
    return time >= reader->since && time < reader->until;
}

static bool wanted_tube(bs_reader *reader, const bs_dump_row *row)
{
    for (uint32_t i = 0; reader->some_tubes && i < reader->tubes.count; i++) {
        const bs_name *name = &reader->tubes.names[i];
        if (row->tube && name->length == row->tube_length && memcmp(name->name, row->tube, name->length) == 0)
            return true;
    }
    return !reader->some_tubes;
}

/* Sets the tube of the row; a short entry has that of its job, if there is one. */
static void find_tube(bs_reader *reader, const bs_spot *spot, bs_dump_row *row)
{
    bs_entry full;
    if (row->entry->name) {
        row->tube = row->entry->name;
        row->tube_length = row->entry->name_length;
    } else if (spot && spot->tube < reader->names.count) {
        row->tube = reader->names.names[spot->tube].name;
        row->tube_length = reader->names.names[spot->tube].length;
    } else if (spot && bs_reader_entry_at(reader, spot->full, &full) == 0) {
        row->tube = full.name;
        row->tube_length = full.name_length;
    }
}

static int print(bs_reader *reader, const bs_spot *spot)
{
    const bs_entry *entry = &reader->scan.entry;
    if (!wanted(reader, entry))
        return 0;
    bs_dump_row row = {.file = reader->label, .offset = reader->scan.at, .entry = entry};
    find_tube(reader, spot, &row);
    if (!wanted_tube(reader, &row))
        return 0;
    return reader->json ? bs_dump_json(reader->dump, &row) : bs_dump_columns(reader->dump, &row);
}

/* --- entries ---------------------------------------------------------------------------------------- */

/* Returns `memory`, enlarged if needed; NULL: no memory, and `memory` is unchanged. */
static void *room_for_one(void *memory, uint64_t count, uint64_t *capacity, size_t size)
{
    if (count < *capacity)
        return memory;
    uint64_t wanted_count = *capacity ? *capacity * 2 : 16;
    void *grown = realloc(memory, wanted_count * size);
    if (grown)
        *capacity = wanted_count;
    return grown;
}

/* Records the length of an earlier file. Returns 0 or -ENOMEM. */
static int take_length(bs_reader *reader, const bs_entry *entry)
{
    reader->facts.lengths++;
    if (entry->length_of >= reader->facts.number)
        return 0;
    bs_read_length *lengths =
        room_for_one(reader->lengths, reader->length_count, &reader->length_capacity, sizeof *lengths);
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

/* Applies the entry to its job, like recovery. Returns 0 or -ENOMEM. */
static int apply(bs_reader *reader, uint64_t position, bs_spot *spot, bool known)
{
    const bs_entry *entry = &reader->scan.entry;
    if (entry->length_of)
        return take_length(reader, entry);
    if (entry->id > reader->highest_id && (entry->name_length > 0 || entry->sound))
        reader->highest_id = entry->id;
    if (entry->state == BS_INVALID) {
        bs_index_remove(&reader->index, entry->id);
        return 0;
    }
    if (entry->name_length > 0) {
        int64_t tube = bs_names_number(&reader->names, entry->name, entry->name_length, BS_INDEX_MANY);
        if (tube < 0)
            return (int)tube;
        *spot = (bs_spot){.full = position,
                          .body_size = entry->body_size < BS_INDEX_LARGE ? entry->body_size : BS_INDEX_LARGE,
                          .tube = (uint32_t)tube};
        return bs_index_put(&reader->index, entry->id, spot);
    }
    spot->last_short = position;
    return known ? bs_index_put(&reader->index, entry->id, spot) : 0;
}

static int take_entry(bs_reader *reader)
{
    const bs_entry *entry = &reader->scan.entry;
    bs_spot spot = {0};
    bool known = bs_index_get(&reader->index, entry->id, &spot);
    if (entry->state != BS_INVALID || entry->sound)
        (void)bs_entry_at(entry, &reader->log_time);
    if (entry->name_length > 0)
        reader->facts.full_entries++;
    else
        reader->facts.short_entries++;
    int error = reader->dump ? print(reader, known ? &spot : NULL) : 0;
    uint64_t base = reader->files[reader->file_count - 1].base;
    return error ? error : apply(reader, base + reader->scan.at, &spot, known);
}

/* --- files ------------------------------------------------------------------------------------------ */

int bs_reader_new(const char *folder, int width, bs_reader **made)
{
    bs_reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return -ENOMEM;
    reader->fd = reader->scan.fd = reader->side.fd = -1;
    reader->boot = bs_boot_read();
    for (size_t i = 0; i < BS_READ_SIDE_FILES; i++)
        reader->side_fds[i] = -1;
    bs_index_init(&reader->index, (size_t)width);
    reader->dir_fd = bs_open_folder(folder);
    int error = reader->dir_fd < 0 ? reader->dir_fd : bs_scan_init(&reader->scan, BS_READ_WINDOW);
    if (!error)
        error = bs_scan_init(&reader->side, BS_READ_SIDE_WINDOW);
    if (error) {
        bs_reader_free(reader);
        return error;
    }
    bs_scan_jobs jobs = {.context = reader, .find = find_job, .last_crc = last_crc_of};
    reader->scan.jobs = jobs;
    reader->side.jobs = jobs;
    *made = reader;
    return 0;
}

static void close_file(bs_reader *reader)
{
    if (reader->fd >= 0)
        (void)close(reader->fd);
    reader->fd = -1;
}

void bs_reader_free(bs_reader *reader)
{
    if (!reader)
        return;
    close_file(reader);
    for (size_t i = 0; i < BS_READ_SIDE_FILES; i++)
        if (reader->side_fds[i] >= 0)
            (void)close(reader->side_fds[i]);
    if (reader->dir_fd >= 0)
        (void)close(reader->dir_fd);
    if (reader->dump)
        bs_bytes_free(&reader->dump->out);
    bs_scan_free(&reader->scan);
    bs_scan_free(&reader->side);
    bs_index_free(&reader->index);
    bs_names_free(&reader->names);
    bs_names_free(&reader->tubes);
    free(reader->dump);
    free(reader->label);
    free(reader->ids);
    free(reader->files);
    free(reader->faults);
    free(reader->lengths);
    free(reader);
}

static int add_file(bs_reader *reader, uint32_t number)
{
    uint64_t capacity = reader->file_capacity;
    bs_read_file *files = room_for_one(reader->files, reader->file_count, &capacity, sizeof *files);
    if (!files)
        return -ENOMEM;
    reader->files = files;
    reader->file_capacity = (uint32_t)capacity;
    if (reader->index.width < 8 && (reader->base + reader->scan.length) >> (8 * reader->index.width) != 0)
        return -EFBIG;
    files[reader->file_count++] = (bs_read_file){.number = number,
                                                 .version = reader->scan.version,
                                                 .base = reader->base,
                                                 .end = BS_ENTRY_HEADER,
                                                 .faults = reader->fault_count};
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
    reader->facts = (bs_read_facts){.number = number, .end = BS_ENTRY_HEADER, .offset = BS_ENTRY_HEADER};
    int fd = open_number(reader, number);
    if (fd < 0)
        return fd;
    int kind = bs_scan_file(&reader->scan, fd, number);
    reader->facts.size = reader->scan.length;
    reader->facts.version = reader->scan.version;
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
    int error = bs_scan_refresh(&reader->scan);
    reader->side.fd = -1; /* its window may be outdated */
    reader->facts.size = reader->scan.length;
    return error;
}

static void update_facts(bs_reader *reader)
{
    bs_read_facts *facts = &reader->facts;
    facts->size = reader->scan.length;
    facts->offset = reader->scan.offset;
    facts->end = reader->scan.end;
    if (reader->file_count > 0)
        reader->files[reader->file_count - 1].end = facts->end;
}

/* Turns a read error into a fault that extends to the end of the file. */
static int cannot_read(bs_reader *reader, int error)
{
    (void)snprintf(reader->why, sizeof reader->why, "it cannot be read: %s", strerror(-error));
    reader->scan.at = reader->scan.offset;
    reader->scan.next = reader->scan.length;
    reader->scan.torn = false;
    reader->scan.fault = reader->why;
    return BS_READ_FAULT;
}

static int fault(bs_reader *reader)
{
    bs_read_facts *facts = &reader->facts;
    facts->at = reader->scan.at;
    facts->next = reader->scan.next;
    facts->torn = reader->scan.torn;
    facts->fault = reader->scan.fault;
    update_facts(reader);
    return BS_READ_FAULT;
}

int bs_reader_run(bs_reader *reader, uint64_t budget)
{
    if (reader->dump)
        reader->dump->out.start = reader->dump->out.end = 0;
    if (reader->fd < 0)
        return BS_READ_END;
    uint64_t until = reader->scan.offset + budget;
    while (reader->scan.offset < until && (!reader->dump || reader->dump->out.end < TEXT_ENOUGH)) {
        int found = bs_scan_next(&reader->scan);
        if (found == -ENOMEM)
            return found;
        if (found < 0)
            (void)cannot_read(reader, found);
        if (found < 0 || found == BS_SCAN_FAULT)
            return fault(reader);
        if (found == BS_SCAN_END) {
            update_facts(reader);
            return BS_READ_END;
        }
        int error = take_entry(reader);
        if (error)
            return error;
    }
    update_facts(reader);
    return BS_READ_MORE;
}

int bs_reader_accept(bs_reader *reader)
{
    bs_read_fault *faults =
        room_for_one(reader->faults, reader->fault_count, &reader->fault_capacity, sizeof *faults);
    if (!faults)
        return -ENOMEM;
    reader->faults = faults;
    uint64_t base = reader->files[reader->file_count - 1].base;
    faults[reader->fault_count++] = (bs_read_fault){base + reader->scan.at, base + reader->scan.next};
    bs_scan_skip(&reader->scan);
    update_facts(reader);
    return 0;
}

/* --- live jobs -------------------------------------------------------------------------------------- */

static bool is_before(void *context, const bs_spot *spot)
{
    return spot->full < *(uint64_t *)context;
}

int bs_reader_forget(bs_reader *reader)
{
    uint64_t before = reader->base + (reader->fd >= 0 ? reader->scan.length : 0);
    uint64_t *ids;
    size_t count;
    int error = bs_index_select(&reader->index, is_before, &before, &ids, &count);
    for (size_t i = 0; i < count && !error; i++)
        bs_index_remove(&reader->index, ids[i]);
    free(ids);
    return error;
}

static int tally_job(void *context, uint64_t id, const bs_spot *spot)
{
    bs_reader *reader = context;
    (void)id;
    bs_read_file *file = &reader->files[bs_reader_file_at(reader, spot->full) - reader->files];
    uint64_t size = (uint64_t)(file->version == BS_VERSION ? BS_ENTRY_SHORT : SHORT_5) + spot->body_size;
    bs_entry entry;
    if (spot->body_size != BS_INDEX_LARGE && spot->tube < reader->names.count)
        size += reader->names.names[spot->tube].length;
    else if (bs_reader_entry_at(reader, spot->full, &entry) == 0)
        size = entry.size;
    file->jobs++;
    file->live += size;
    if (spot->last_short) {
        file = &reader->files[bs_reader_file_at(reader, spot->last_short) - reader->files];
        file->live += file->version == BS_VERSION ? BS_ENTRY_SHORT : SHORT_5;
    }
    return 0;
}

int64_t bs_reader_tally(bs_reader *reader)
{
    uint64_t live = 0;
    for (uint32_t i = 0; i < reader->file_count; i++)
        reader->files[i].jobs = reader->files[i].live = 0;
    int error = bs_index_each(&reader->index, tally_job, reader);
    for (uint32_t i = 0; i < reader->file_count; i++)
        live += reader->files[i].live;
    return error ? error : (int64_t)live;
}

int bs_reader_usage(const bs_reader *reader, uint32_t index, bs_file_usage *usage)
{
    if (index >= reader->file_count)
        return 0;
    const bs_read_file *file = &reader->files[index];
    *usage = (bs_file_usage){.number = file->number, .jobs = file->jobs, .live_bytes = file->live};
    return 1;
}

const bs_read_facts *bs_reader_facts(const bs_reader *reader)
{
    return &reader->facts;
}

uint64_t bs_reader_jobs(const bs_reader *reader)
{
    return reader->index.count;
}

uint64_t bs_reader_last_id(const bs_reader *reader)
{
    return reader->highest_id;
}
