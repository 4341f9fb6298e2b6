#include "binlog_files/scan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file_io.h"

enum { MARK_AT = BS_ENTRY_SHORT - 3, LOOK_BACK = 64 * 1024, LINE = 64, AHEAD = 16 * LINE, LINES_AHEAD = 4 };

/* --- the window --------------------------------------------------------------------------------------- */

int bs_scan_init(bs_scan *scan, size_t window_bytes)
{
    *scan = (bs_scan){.fd = -1, .window = malloc(window_bytes), .window_capacity = window_bytes};
    return scan->window ? 0 : -ENOMEM;
}

void bs_scan_free(bs_scan *scan)
{
    if (scan->window_capacity > 0)
        free(scan->window);
    *scan = (bs_scan){.fd = -1};
}

/* Moves the window to `offset`, keeps the overlap, and fills it. */
static int move_window(bs_scan *scan, uint64_t offset, size_t wanted)
{
    size_t kept = 0;
    if (offset >= scan->window_at && offset < scan->window_at + scan->window_length) {
        size_t before = (size_t)(offset - scan->window_at);
        kept = scan->window_length - before;
        memmove(scan->window, scan->window + before, kept);
    }
    scan->window_at = offset;
    scan->window_length = kept;
    while (scan->window_length < wanted) {
        uint64_t from = offset + scan->window_length;
        uint64_t rest = scan->length > from ? scan->length - from : 0;
        size_t space = scan->window_capacity - scan->window_length;
        size_t most = rest < space ? (size_t)rest : space;
        ssize_t got = most > 0 ? bs_io_read(scan->fd, scan->window + scan->window_length, most, (off_t)from) : 0;
        if (got < 0)
            return (int)got;
        if (got == 0) {
            scan->length = from; /* its writer has truncated it */
            return 0;
        }
        scan->window_length += (size_t)got;
    }
    return 0;
}

const char *bs_scan_fetch(bs_scan *scan, uint64_t offset, size_t wanted, size_t *got, int *error)
{
    *error = 0;
    uint64_t rest = scan->length > offset ? scan->length - offset : 0;
    if (wanted > rest)
        wanted = (size_t)rest;
    if (scan->fd >= 0) {
        if (wanted > scan->window_capacity)
            wanted = scan->window_capacity;
        if (wanted > 0 && (offset < scan->window_at || offset + wanted > scan->window_at + scan->window_length))
            *error = move_window(scan, offset, wanted);
    }
    bool inside = offset >= scan->window_at && offset < scan->window_at + scan->window_length;
    *got = inside ? (size_t)(scan->window_at + scan->window_length - offset) : 0;
    if (*error)
        return NULL;
    return inside ? scan->window + (offset - scan->window_at) : scan->window;
}

/* --- the rest of a file --------------------------------------------------------------------------------- */

static size_t without_zeros(const char *data, size_t length)
{
    while (length > 0 && data[length - 1] == 0)
        length--;
    return length;
}

/* Returns an offset up to `end` behind which there are only holes. A sparse file can be larger than any disk, so holes
 * are not read. */
static uint64_t before_holes(int fd, uint64_t end)
{
    uint64_t step = LOOK_BACK;
    while (end > 0) {
        uint64_t from = end > step ? end - step : 0;
        off_t data = lseek(fd, (off_t)from, SEEK_DATA);
        bool is_hole = data < 0 ? errno == ENXIO : (uint64_t)data >= end;
        if (!is_hole && step == LOOK_BACK)
            return end;
        if (is_hole)
            end = from;
        step = is_hole ? step * 2 : LOOK_BACK;
    }
    return 0;
}

int64_t bs_data_end(int fd, uint64_t length)
{
    char *piece = malloc(LOOK_BACK);
    if (!piece)
        return -ENOMEM;
    int64_t data_end = 0; /* or an error */
    for (uint64_t end = length; data_end == 0 && (end = before_holes(fd, end)) > 0;) {
        size_t wanted = end < LOOK_BACK ? (size_t)end : LOOK_BACK;
        end -= wanted;
        ssize_t got = bs_io_read(fd, piece, wanted, (off_t)end);
        size_t data = got > 0 ? without_zeros(piece, (size_t)got) : 0;
        if (got < 0 || data > 0)
            data_end = got < 0 ? got : (int64_t)(end + data);
    }
    free(piece);
    return data_end;
}

bool bs_scan_rest_is_zero(bs_scan *scan, uint64_t offset, int *error)
{
    if (scan->data_end < 0 && offset < scan->length) {
        const uint64_t length = scan->length;
        scan->data_end =
            scan->fd < 0 ? (int64_t)without_zeros(scan->window, (size_t)length) : bs_data_end(scan->fd, length);
        if (scan->data_end < 0)
            *error = (int)scan->data_end;
    }
    return !*error && (offset >= scan->length || (uint64_t)scan->data_end <= offset);
}

/* --- files ------------------------------------------------------------------------------------------ */

static int begin(bs_scan *scan, uint32_t number)
{
    scan->number = number;
    scan->version = 0;
    scan->is_ours = scan->writer_known = false;
    scan->offset = scan->end = BS_ENTRY_HEADER;
    scan->data_end = -1;
    scan->fault = NULL;
    int error = 0;
    size_t got = 0;
    const char *data = bs_scan_fetch(scan, 0, BS_ENTRY_HEADER + 1, &got, &error);
    if (error)
        return error;
    if (got <= BS_ENTRY_HEADER)
        return BS_SCAN_EMPTY;
    memcpy(&scan->version, data, sizeof scan->version);
    const bool is_unwritten = data[BS_ENTRY_HEADER] == 0 && bs_scan_rest_is_zero(scan, BS_ENTRY_HEADER, &error);
    if (error)
        return error;
    if (is_unwritten)
        return BS_SCAN_EMPTY;
    return scan->version == BS_VERSION || scan->version == BS_VERSION_5 ? BS_SCAN_FILE : BS_SCAN_VERSION;
}

int bs_scan_extend(bs_scan *scan, uint64_t length)
{
    struct stat status;
    if (fstat(scan->fd, &status) != 0)
        return -errno;
    uint64_t size = (uint64_t)status.st_size;
    scan->length = length < size ? length : size;
    scan->writer_known = scan->is_ours;
    scan->data_end = -1;
    if (scan->window_at + scan->window_length > scan->length)
        scan->window_length = scan->length > scan->window_at ? (size_t)(scan->length - scan->window_at) : 0;
    return 0;
}

int bs_scan_refresh(bs_scan *scan)
{
    scan->window_at = scan->window_length = 0;
    return bs_scan_extend(scan, UINT64_MAX);
}

int bs_scan_file(bs_scan *scan, int fd, uint32_t number, uint64_t length)
{
    scan->fd = fd;
    scan->window_at = scan->window_length = 0;
    int error = bs_scan_extend(scan, length);
    return error ? error : begin(scan, number);
}

int bs_scan_bytes(bs_scan *scan, char *data, size_t length, uint32_t number)
{
    scan->fd = -1;
    scan->window = data;
    scan->window_at = 0;
    scan->window_length = scan->length = length;
    scan->window_capacity = 0; /* not owned */
    return begin(scan, number);
}

/* --- one entry -------------------------------------------------------------------------------------- */

/* Checks an entry that is larger than the window: its end and its checksum. */
static int64_t check_in_pieces(bs_scan *scan, uint64_t offset, bs_entry *entry, int *error)
{
    size_t got;
    const char *data = bs_scan_fetch(scan, offset, BS_ENTRY_HEAD_MAX, &got, error);
    if (!data || got < entry->head)
        return BS_ENTRY_CUT;
    uint32_t sum = entry->marked ? bs_entry_sum_head(data, entry) : 0;
    memcpy(scan->name, entry->name, entry->name_length); /* the window will move */
    entry->name = scan->name;
    uint64_t end = offset + entry->size;
    char last[2] = {0};
    for (uint64_t at = offset + entry->head; at < end;) {
        uint64_t left = end - at;
        size_t wanted = left < scan->window_capacity ? (size_t)left : scan->window_capacity;
        data = bs_scan_fetch(scan, at, wanted, &got, error);
        if (!data || got == 0)
            return BS_ENTRY_CUT;
        size_t piece = got < left ? got : (size_t)left;
        if (entry->marked)
            sum = bs_crc32c(sum, data, piece);
        last[0] = piece > 1 ? data[piece - 2] : last[1];
        last[1] = data[piece - 1];
        at += piece;
    }
    if (memcmp(last, "\r\n", sizeof last) != 0)
        return BS_ENTRY_BAD;
    entry->sound = entry->marked && sum == entry->crc;
    return (int64_t)entry->size;
}

int64_t bs_scan_check(bs_scan *scan, uint64_t offset, bs_entry *entry, int *error)
{
    size_t got;
    const char *data = bs_scan_fetch(scan, offset, BS_ENTRY_HEAD_MAX, &got, error);
    if (!data)
        return BS_ENTRY_CUT;
    /* Entries are decoded faster than the processor loads a newly read file into its cache. Prefetching an unmapped
     * address does nothing. */
    for (uintptr_t line = 0; line < LINES_AHEAD; line++)
        __builtin_prefetch((const void *)((uintptr_t)data + AHEAD + line * LINE));
    int64_t size = bs_entry_decode(data, got, scan->version, entry);
    if (size != BS_ENTRY_CUT || offset + got >= scan->length || offset + entry->size > scan->length)
        return size;
    if (entry->size > scan->window_capacity)
        return check_in_pieces(scan, offset, entry, error);
    data = bs_scan_fetch(scan, offset, entry->size, &got, error);
    return data ? bs_entry_decode(data, got, scan->version, entry) : BS_ENTRY_CUT;
}

int bs_scan_copy_body(const bs_scan *scan, uint64_t offset, const bs_entry *entry, size_t length, char *to)
{
    if (entry->body) {
        memcpy(to, entry->body, length);
        return 0;
    }
    for (size_t at = 0; at < length;) {
        ssize_t got = bs_io_read(scan->fd, to + at, length - at, (off_t)(offset + entry->head + at));
        if (got <= 0)
            return got < 0 ? (int)got : -EIO;
        at += (size_t)got;
    }
    return 0;
}

/* Returns why a full entry contradicts the job's previous full entry, or NULL. */
static const char *contradiction(const bs_scan *scan, const bs_entry *entry)
{
    bs_entry before;
    if (!scan->find_job(scan->context, entry->id, false, &before))
        return NULL;
    if (before.body_size != entry->body_size)
        return "its size is not that of the same job before";
    if (before.name_length != entry->name_length || memcmp(before.name, entry->name, entry->name_length) != 0)
        return "its tube is not that of the same job before";
    return NULL;
}

/* Returns why an entry is invalid, or NULL. */
static const char *fault_of(bs_scan *scan, const bs_entry *entry)
{
    bool of_this_file = entry->marked && entry->tag == (uint16_t)scan->number;
    bs_entry last;
    if (entry->sound && of_this_file)
        scan->is_ours = scan->writer_known = true;
    else if (entry->sound)
        return entry->name_length > 0 ? contradiction(scan, entry) : NULL;
    else if (of_this_file &&
             !(scan->find_job(scan->context, entry->id, true, &last) && last.crc == entry->crc))
        return "its checksum is wrong";
    else if (scan->is_ours)
        return "it has no checksum of this file";
    /* C beanstalkd copies marks only from earlier files. */
    else if (entry->marked && scan->number <= UINT16_MAX && (entry->tag > scan->number || entry->tag == 0))
        return "its file number is not that of an earlier file";
    /* C beanstalkd writes zeros here or copies the mark too, and always writes a time. So this is an entry of this
     * server, cut before its mark. */
    else if (scan->version == BS_VERSION && !entry->marked && (entry->crc != 0 || entry->created_at == 0))
        return "it is torn";
    return entry->name_length > 0 ? contradiction(scan, entry) : NULL;
}

/* --- behind a fault ----------------------------------------------------------------------------------- */

/* Returns whether a sound entry could begin at data[at]. */
static bool may_begin(const char *data, size_t length, size_t at)
{
    int32_t name_length;
    memcpy(&name_length, data + at, sizeof name_length);
    if (name_length < 0 || name_length > BS_TUBE_NAME_MAX)
        return false;
    size_t mark = at + (size_t)name_length + MARK_AT;
    return mark < length && (uint8_t)data[mark] == BS_ENTRY_MARK;
}

/* Skips most of a hole behind the window. */
static uint64_t behind_hole(const bs_scan *scan, uint64_t offset)
{
    bool in_window = offset >= scan->window_at && offset + BS_ENTRY_HEAD_MAX <= scan->window_at + scan->window_length;
    if (scan->fd < 0 || in_window)
        return offset;
    off_t data = lseek(scan->fd, (off_t)offset, SEEK_DATA);
    if (data < 0)
        return errno == ENXIO ? scan->length : offset;
    return (uint64_t)data > offset + BS_ENTRY_HEAD_MAX ? (uint64_t)data - BS_ENTRY_HEAD_MAX : offset;
}

/* Returns the offset of the next entry whose checksum proves that it belongs to this file; the length if there is none.
 */
static uint64_t resync(bs_scan *scan, uint64_t offset, int *error)
{
    bs_entry entry;
    while (scan->version == BS_VERSION && offset + BS_ENTRY_SHORT <= scan->length) {
        size_t got;
        offset = behind_hole(scan, offset);
        const char *data = bs_scan_fetch(scan, offset, BS_ENTRY_HEAD_MAX, &got, error);
        if (!data || got < BS_ENTRY_SHORT)
            break;
        bool last = offset + got >= scan->length;
        size_t candidates = got - (last ? (size_t)BS_ENTRY_SHORT : (size_t)BS_ENTRY_HEAD_MAX) + 1;
        size_t at = 0;
        while (at < candidates && !may_begin(data, got, at))
            at++;
        offset += at;
        if (at == candidates)
            continue;
        int64_t size = bs_scan_check(scan, offset, &entry, error);
        if (*error || (size > 0 && entry.sound && entry.tag == (uint16_t)scan->number))
            return offset;
        offset++;
    }
    return scan->length;
}

/* Returns the size of the version 7 entry at the offset, or 0. */
static uint64_t size_at(bs_scan *scan, uint64_t offset, int *error)
{
    bs_entry entry;
    size_t got;
    const char *data = bs_scan_fetch(scan, offset, BS_ENTRY_HEAD_MAX, &got, error);
    int64_t size = data ? bs_entry_decode(data, got, BS_VERSION, &entry) : BS_ENTRY_BAD;
    if (size == BS_ENTRY_CUT && entry.size > got && entry.size <= LOOK_BACK) {
        data = bs_scan_fetch(scan, offset, entry.size, &got, error);
        size = data ? bs_entry_decode(data, got, BS_VERSION, &entry) : BS_ENTRY_BAD;
    }
    return size > 0 && entry.created_at > 0 ? (uint64_t)size : 0;
}

/* Returns whether a sequence of whole entries begins behind the offset and ends with the data. */
static bool entries_to_the_end(bs_scan *scan, uint64_t offset, int *error)
{
    const uint64_t end = (uint64_t)scan->data_end;
    for (; offset + BS_ENTRY_SHORT <= end && !*error; offset++) {
        uint64_t at = offset;
        for (uint64_t size; at < end && (size = size_at(scan, at, error)) > 0;)
            at += size;
        if (at >= end)
            return true;
    }
    return false;
}

/* Returns whether this is the start of an entry that a crash cut off, with nothing behind it. In a file of C beanstalkd
 * with entries behind it, the entry's size is damaged; in a file of this server resync would have found them. */
static bool torn(bs_scan *scan, uint64_t offset, const bs_entry *entry, int *error)
{
    if (bs_scan_rest_is_zero(scan, offset, error))
        return true;
    /* A whole entry ends with the CR LF of its body, or with the mark and a file number that may be zero. */
    size_t least = entry->size ? entry->size - 2 : BS_ENTRY_SHORT + BS_TUBE_NAME_MAX;
    if (*error || (uint64_t)scan->data_end - offset >= least)
        return false;
    return scan->is_ours || (!entries_to_the_end(scan, offset + 1, error) && !*error);
}

/* Detects whether this server wrote the file, by an entry from the present offset on that proves it. C beanstalkd never
 * appends to an existing file, so one entry is sufficient. It goes from entry to entry, because a body may contain
 * anything. */
static int detect_writer(bs_scan *scan)
{
    bs_entry entry;
    int error = 0;
    for (uint64_t offset = scan->offset; offset < scan->length && scan->version == BS_VERSION;) {
        int64_t size = bs_scan_check(scan, offset, &entry, &error);
        bool of_this_file = entry.marked && entry.tag == (uint16_t)scan->number;
        bool by_c = entry.size > 0 && !of_this_file && (entry.marked || entry.crc == 0);
        if (error)
            return error;
        if (size > 0 && entry.sound && of_this_file)
            scan->is_ours = true;
        else if (size <= 0 && !bs_scan_rest_is_zero(scan, offset, &error))
            scan->is_ours = resync(scan, offset + (by_c ? entry.size : 1), &error) < scan->length;
        if (error)
            return error;
        if (scan->is_ours || size <= 0)
            break;
        offset += (uint64_t)size;
    }
    scan->writer_known = true;
    return 0;
}

static int set_fault(bs_scan *scan, const char *fault)
{
    const bs_entry entry = scan->entry; /* reading on moves the window */
    int error = scan->writer_known ? 0 : detect_writer(scan);
    scan->fault = fault;
    scan->next = scan->length;
    if (!error && scan->is_ours)
        scan->next = resync(scan, scan->at + 1, &error);
    scan->torn = !error && scan->next >= scan->length && torn(scan, scan->at, &entry, &error);
    return error ? error : BS_SCAN_FAULT;
}

void bs_scan_set_unreadable(bs_scan *scan, int error)
{
    (void)snprintf(scan->read_error, sizeof scan->read_error, "it cannot be read: %s", strerror(-error));
    scan->fault = scan->read_error;
    scan->at = scan->offset;
    scan->next = scan->length;
    scan->torn = false;
}

void bs_scan_skip(bs_scan *scan)
{
    scan->end = scan->next < scan->length ? scan->next : scan->at;
    scan->offset = scan->next;
}

int bs_scan_next(bs_scan *scan)
{
    scan->at = scan->offset;
    scan->cut = false;
    if (scan->offset >= scan->length)
        return BS_SCAN_END;
    int error = 0;
    int64_t size = bs_scan_check(scan, scan->offset, &scan->entry, &error);
    if (!error && size > 0 && !scan->entry.sound && !scan->writer_known) {
        error = detect_writer(scan);
        if (!error)
            size = bs_scan_check(scan, scan->offset, &scan->entry, &error); /* the window may have moved */
    }
    if (error)
        return error;
    if (size == BS_ENTRY_BAD)
        return set_fault(scan, "it is torn or overwritten");
    if (size == BS_ENTRY_END || size == BS_ENTRY_CUT) {
        if (bs_scan_rest_is_zero(scan, scan->offset, &error))
            return BS_SCAN_END;
        if (error)
            return error;
        scan->cut = size == BS_ENTRY_CUT;
        return set_fault(scan, size == BS_ENTRY_END ? "it is torn or overwritten" : "it is cut");
    }
    const char *fault = fault_of(scan, &scan->entry);
    if (fault)
        return set_fault(scan, fault);
    scan->offset += (uint64_t)size;
    scan->end = scan->offset;
    return BS_SCAN_ENTRY;
}
