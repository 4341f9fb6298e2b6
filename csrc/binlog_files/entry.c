#include "binlog_files/entry.h"

#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"

enum {
    REC_7 = 80, /* bytes of Jobrec */
    REC_5 = 77,
    AT_CRC = 12,
    AT_EXTRA = 36,
    AT_MARK = 77,
    NAME_LIMIT = BS_TUBE_NAME_MAX
};

#define TRUNCATED (BS_RESERVE_AGE_MAX + 1)

/* Jobrec of version 7; C beanstalkd treats `crc`, `extra` and `mark` as padding. Version 5 has the same first 77 bytes.
 */
typedef struct {
    uint64_t id;
    uint32_t pri;
    uint32_t crc;
    int64_t delay;
    int64_t ttr;
    int32_t body_size;
    uint32_t extra; /* ended and reserve_age */
    int64_t created_at;
    int64_t deadline_at;
    uint32_t reserves;
    uint32_t timeouts;
    uint32_t releases;
    uint32_t buries;
    uint32_t kicks;
    uint8_t state;
    uint8_t mark[3];
} record;

_Static_assert(sizeof(record) == REC_7, "Jobrec is 80 bytes");
_Static_assert(offsetof(record, crc) == AT_CRC && offsetof(record, extra) == AT_EXTRA &&
                   offsetof(record, mark) == AT_MARK,
               "where the padding is");
_Static_assert(sizeof(record) + 4 == BS_ENTRY_SHORT, "a short entry is a length and a Jobrec");

static void seal(char *entry, size_t size, size_t record_at)
{
    uint32_t crc = bs_crc32c(0, entry, size);
    memcpy(entry + record_at + AT_CRC, &crc, sizeof crc);
}

static void set_mark(record *rec, uint32_t file_number)
{
    rec->mark[0] = BS_ENTRY_MARK;
    rec->mark[1] = (uint8_t)(file_number & 0xff);
    rec->mark[2] = (uint8_t)(file_number >> 8 & 0xff);
}

static record record_of(const bs_job *job, uint8_t state, int64_t at, uint32_t file_number)
{
    record rec = {
        .id = job->id,
        .pri = job->pri,
        .delay = (int64_t)job->delay * BS_SECOND,
        .ttr = (int64_t)job->ttr * BS_SECOND,
        .body_size = (int32_t)job->body_size,
        .created_at = job->created_at,
        .deadline_at = at,
        .reserves = job->reserves,
        .timeouts = job->timeouts,
        .releases = job->releases,
        .buries = job->buries,
        .kicks = job->kicks,
        .state = state,
    };
    set_mark(&rec, file_number);
    return rec;
}

static size_t put_short(char *out, const record *rec)
{
    memset(out, 0, sizeof(int32_t));
    memcpy(out + sizeof(int32_t), rec, sizeof *rec);
    seal(out, BS_ENTRY_SHORT, sizeof(int32_t));
    return BS_ENTRY_SHORT;
}

size_t bs_entry_encode(char *out, const bs_job *job, uint8_t state, int64_t at, bool full, uint32_t reserve_age,
                       uint32_t file_number)
{
    record rec = record_of(job, state, at, file_number);
    rec.extra = reserve_age;
    int32_t name_length = full ? job->tube->name_length : 0;
    memcpy(out, &name_length, sizeof name_length);
    size_t record_at = sizeof name_length;
    if (full) {
        memcpy(out + record_at, job->tube->name, job->tube->name_length);
        record_at += job->tube->name_length;
    }
    memcpy(out + record_at, &rec, sizeof rec);
    size_t size = record_at + sizeof rec;
    if (full) {
        memcpy(out + size, job->body, job->body_size);
        size += job->body_size;
    }
    seal(out, size, record_at);
    return size;
}

size_t bs_entry_encode_last_id(char *out, uint64_t id, int64_t at, uint32_t file_number)
{
    record rec = {.id = id, .created_at = at, .deadline_at = at, .state = BS_INVALID};
    set_mark(&rec, file_number);
    return put_short(out, &rec);
}

size_t bs_entry_encode_length(char *out, uint64_t id, const bs_entry_file_length *length, int64_t at,
                              uint32_t file_number)
{
    record rec = {.id = id,
                  .pri = length->file,
                  .delay = (int64_t)length->bytes,
                  .ttr = (int64_t)length->boot,
                  .created_at = at,
                  .deadline_at = at,
                  .state = BS_INVALID};
    set_mark(&rec, file_number);
    return put_short(out, &rec);
}

size_t bs_entry_encode_end(char *out, const bs_job *job, uint32_t ended, int64_t at, uint32_t reserve_age,
                           uint32_t file_number)
{
    record rec = record_of(job, BS_INVALID, at, file_number);
    rec.extra = reserve_age | (ended == BS_ENDED_TRUNCATED ? TRUNCATED : 0);
    return put_short(out, &rec);
}

size_t bs_entry_encode_head(char *out, const bs_entry *entry, uint32_t file_number)
{
    record rec = {
        .id = entry->id,
        .pri = entry->pri,
        .delay = entry->delay,
        .ttr = entry->ttr,
        .body_size = (int32_t)entry->body_size,
        .created_at = entry->created_at,
        .deadline_at = entry->at,
        .reserves = entry->reserves,
        .timeouts = entry->timeouts,
        .releases = entry->releases,
        .buries = entry->buries,
        .kicks = entry->kicks,
        .state = entry->state,
    };
    set_mark(&rec, file_number);
    int32_t name_length = (int32_t)entry->name_length;
    memcpy(out, &name_length, sizeof name_length);
    size_t record_at = sizeof name_length + entry->name_length;
    memcpy(out + sizeof name_length, entry->name, entry->name_length);
    memcpy(out + record_at, &rec, sizeof rec);
    return record_at + sizeof rec;
}

void bs_entry_seal_head(char *head, size_t size, uint32_t crc)
{
    memcpy(head + size - REC_7 + AT_CRC, &crc, sizeof crc);
}

/* Only version 7 has checksums, so the head ends with a Jobrec of 80 bytes. */
uint32_t bs_entry_sum_head(const char *data, const bs_entry *entry)
{
    static const char zeros[4];
    size_t field = entry->head - REC_7 + AT_CRC;
    uint32_t sum = bs_crc32c(0, data, field);
    sum = bs_crc32c(sum, zeros, sizeof zeros);
    return bs_crc32c(sum, data + field + sizeof zeros, entry->head - field - sizeof zeros);
}

static bool checksum_right(const char *data, const bs_entry *entry)
{
    uint32_t sum = bs_entry_sum_head(data, entry);
    return bs_crc32c(sum, data + entry->head, entry->size - entry->head) == entry->crc;
}

/* Returns whether beanstalkd could have written these numbers. */
static bool plausible(const bs_entry *entry, int32_t body_size)
{
    const int64_t most = (int64_t)UINT32_MAX * BS_SECOND;
    bool times = entry->delay >= 0 && entry->delay <= most && entry->ttr >= 0 && entry->ttr <= most &&
                 entry->created_at >= 0 && entry->at >= 0;
    int32_t least_body = entry->name_length > 0 ? 2 : 0; /* its CR LF; the entry with the highest id has none */
    return times && entry->id <= INT64_MAX && entry->state <= BS_DELAYED && body_size >= least_body;
}

/* Returns -1, which is not plausible, for a time that no clock can show. */
static int64_t in_nanoseconds(int64_t time, int version)
{
    if (version == BS_VERSION)
        return time > BS_TIME_LAST ? -1 : time;
    return time < 0 || time > BS_TIME_LAST / 1000 ? -1 : time * 1000; /* version 5 has microseconds */
}

/* Copies two parts of constant size, because a copy of variable size would take longer than the rest of the decoding.
 */
static void read_record(record *rec, const char *data, int version)
{
    enum { FIRST = 64 };
    char *to = (char *)rec;
    memcpy(to, data, FIRST);
    if (version == BS_VERSION) {
        memcpy(to + FIRST, data + FIRST, REC_7 - FIRST);
    } else {
        memcpy(to + FIRST, data + FIRST, REC_5 - FIRST);
        memset(to + REC_5, 0, REC_7 - REC_5);
    }
}

static void set_fields(bs_entry *entry, const record *rec, int version)
{
    entry->id = rec->id;
    entry->pri = rec->pri;
    entry->delay = in_nanoseconds(rec->delay, version);
    entry->ttr = in_nanoseconds(rec->ttr, version);
    entry->created_at = in_nanoseconds(rec->created_at, version);
    entry->at = in_nanoseconds(rec->deadline_at, version);
    entry->name = NULL;
    entry->body = NULL;
    entry->body_size = (uint32_t)rec->body_size;
    entry->reserves = rec->reserves;
    entry->timeouts = rec->timeouts;
    entry->releases = rec->releases;
    entry->buries = rec->buries;
    entry->kicks = rec->kicks;
    entry->state = rec->state;
    entry->marked = version == BS_VERSION && rec->mark[0] == BS_ENTRY_MARK;
    entry->tag = (uint16_t)(rec->mark[1] | rec->mark[2] << 8);
    entry->crc = rec->crc;
    entry->ended = rec->state == BS_INVALID && rec->extra & TRUNCATED ? BS_ENDED_TRUNCATED : BS_ENDED_DELETED;
    entry->reserve_age = rec->extra & BS_RESERVE_AGE_MAX;
    entry->sound = false;
    entry->length_of = 0;
    entry->length = 0;
    entry->length_boot = 0;
}

/* Moves the fields of bs_entry_encode_length to where readers expect them. */
static void take_length(bs_entry *entry)
{
    entry->length_of = entry->pri;
    entry->length = (uint64_t)entry->delay;
    entry->length_boot = (uint64_t)entry->ttr;
    entry->pri = 0;
    entry->delay = 0;
    entry->ttr = 0;
}

static int64_t nothing(bs_entry *entry, int64_t why)
{
    *entry = (bs_entry){0};
    return why;
}

int64_t bs_entry_decode(const char *data, size_t length, int version, bs_entry *entry)
{
    size_t prefix = version == BS_VERSION ? sizeof(int32_t) : sizeof(uint64_t);
    size_t rec_size = version == BS_VERSION ? REC_7 : REC_5;
    int64_t name_length = 0;
    if (length < prefix)
        return nothing(entry, length == 0 ? BS_ENTRY_END : BS_ENTRY_CUT);
    memcpy(&name_length, data, prefix); /* little-endian: the upper bytes are zero */
    if (name_length < 0 || name_length > NAME_LIMIT)
        return nothing(entry, BS_ENTRY_BAD);
    size_t record_at = prefix + (size_t)name_length;
    if (length < record_at + rec_size)
        return nothing(entry, BS_ENTRY_CUT);
    record rec;
    read_record(&rec, data + record_at, version);
    if (rec.id == 0)
        return nothing(entry, BS_ENTRY_END);
    set_fields(entry, &rec, version);
    entry->name_length = (uint32_t)name_length;
    entry->size = entry->head = record_at + rec_size;
    if (name_length > 0)
        entry->name = data + prefix;
    if (!plausible(entry, rec.body_size) ||
        (name_length > 0 && !bs_tube_name_valid(entry->name, entry->name_length)))
        return nothing(entry, BS_ENTRY_BAD);
    if (name_length > 0)
        entry->size += entry->body_size;
    if (length < entry->size)
        return BS_ENTRY_CUT;
    if (name_length > 0) {
        entry->body = data + entry->head;
        if (memcmp(entry->body + entry->body_size - 2, "\r\n", 2) != 0)
            return BS_ENTRY_BAD;
    }
    entry->sound = entry->marked && checksum_right(data, entry);
    if (!entry->sound) { /* C beanstalkd writes neither */
        entry->ended = BS_ENDED_DELETED;
        entry->reserve_age = 0;
    } else if (bs_entry_is_last_id(entry) && entry->pri > 0) {
        take_length(entry);
    }
    return (int64_t)entry->size;
}

static bool has_deadline(const bs_entry *entry)
{
    return entry->state == BS_DELAYED || entry->state == BS_RESERVED;
}

int64_t bs_entry_event(const bs_entry *entry)
{
    if (!has_deadline(entry))
        return entry->sound ? entry->at : -1;
    int64_t before = entry->state == BS_DELAYED ? entry->delay : entry->ttr;
    return entry->at >= before ? entry->at - before : -1;
}

int64_t bs_entry_reserved_at(const bs_entry *entry)
{
    return entry->reserve_age ? bs_entry_event(entry) - (int64_t)(entry->reserve_age - 1) : -1;
}

int64_t bs_entry_at(const bs_entry *entry, int64_t *log_time)
{
    int64_t at = entry->created_at;
    if (has_deadline(entry) || entry->sound)
        at = entry->at;
    else if (entry->state == BS_BURIED)
        at = *log_time < BS_TIME_LAST ? *log_time + 1 : BS_TIME_LAST;
    int64_t known = has_deadline(entry) ? entry->created_at : at;
    if (known > *log_time)
        *log_time = known;
    return at;
}
