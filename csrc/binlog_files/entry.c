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
    KIND_ATTRIBUTES = 1, /* in the counter of kicks of an entry of no job */
    KIND_ENDED_KEY = 2,
    ENDED_SHIFT = 29, /* in `extra`, whose highest bit is NOT_DELETED */
    ENDED_MASK = 3
};

#define NOT_DELETED (BS_RESERVE_AGE_MAX + 1)
#define ENDED_AGE_MAX ((1U << ENDED_SHIFT) - 1)

_Static_assert(BS_ENDS - BS_ENDED_MOVED <= ENDED_MASK + 1, "two bits record the ends that are no delete");

const char *const bs_ended_names[BS_ENDS] = {"deleted", "truncated", "moved", "expired", "dead-lettered",
                                           "discarded"};

/* C beanstalkd treats `crc`, `extra` and `mark` as padding. Version 5 has the same first 77 bytes. */
_Static_assert(offsetof(bs_entry, crc) == AT_CRC && offsetof(bs_entry, extra) == AT_EXTRA &&
                   offsetof(bs_entry, mark) == AT_MARK && offsetof(bs_entry, name) == REC_7,
               "an entry begins with Jobrec");
_Static_assert(offsetof(bs_entry, kicks) - offsetof(bs_entry, reserves) == BS_KEY_BYTES, "a key fills four counters");
_Static_assert(REC_7 + sizeof(int32_t) == BS_ENTRY_SHORT, "a short entry is a length and a Jobrec");

/* Writes an entry up to its body, with 0 as checksum, and returns its size. */
static size_t write_head(char *out, bs_entry *entry, const char *name, size_t name_length, uint32_t file_number)
{
    const int32_t prefix = (int32_t)name_length;
    entry->mark[0] = BS_ENTRY_MARK;
    entry->mark[1] = (uint8_t)(file_number & 0xff);
    entry->mark[2] = (uint8_t)(file_number >> 8 & 0xff);
    memcpy(out, &prefix, sizeof prefix);
    if (name_length > 0)
        memcpy(out + sizeof prefix, name, name_length);
    memcpy(out + sizeof prefix + name_length, entry, REC_7);
    return sizeof prefix + name_length + REC_7;
}

static size_t write_short(char *out, bs_entry *entry, uint32_t file_number)
{
    const size_t size = write_head(out, entry, NULL, 0, file_number);
    bs_entry_seal_head(out, size, bs_crc32c(0, out, size));
    return size;
}

size_t bs_entry_encode(char *out, const bs_job *job, uint8_t state, int64_t at, bool full, uint32_t extra,
                       uint32_t file_number)
{
    bs_entry entry = {
        .id = job->id,
        .pri = job->pri,
        .delay = (int64_t)job->delay * BS_SECOND,
        .ttr = (int64_t)job->ttr * BS_SECOND,
        .body_size = job->body_size,
        .extra = extra,
        .created_at = job->created_at,
        .at = at,
        .reserves = job->reserves,
        .timeouts = job->timeouts,
        .releases = job->releases,
        .buries = job->buries,
        .kicks = job->kicks,
        .state = state,
    };
    if (!full)
        return write_short(out, &entry, file_number);
    const size_t head = write_head(out, &entry, job->tube->name, job->tube->name_length, file_number);
    memcpy(out + head, bs_job_body(job), job->body_size);
    bs_entry_seal_head(out, head, bs_crc32c(0, out, head + job->body_size));
    return head + job->body_size;
}

size_t bs_entry_encode_last_id(char *out, uint64_t id, int64_t at, uint32_t file_number)
{
    bs_entry entry = {.id = id, .created_at = at, .at = at, .state = BS_INVALID};
    return write_short(out, &entry, file_number);
}

size_t bs_entry_encode_length(char *out, uint64_t id, const bs_entry_file_length *length, int64_t at,
                              uint32_t file_number)
{
    bs_entry entry = {.id = id,
                      .pri = length->file,
                      .delay = (int64_t)length->bytes,
                      .ttr = (int64_t)length->boot,
                      .created_at = at,
                      .at = at,
                      .state = BS_INVALID};
    return write_short(out, &entry, file_number);
}

size_t bs_entry_encode_attributes(char *out, uint64_t id, const bs_entry_attributes *attributes, int64_t at,
                                  uint32_t file_number)
{
    bs_entry entry = {.id = id,
                      .delay = attributes->values.window,
                      .ttr = attributes->until ? attributes->until : attributes->values.expires,
                      .created_at = (int64_t)(attributes->job - 1), /* the highest id is no valid time */
                      .at = at,
                      .kicks = attributes->until ? KIND_ENDED_KEY : KIND_ATTRIBUTES,
                      .state = BS_INVALID};
    memcpy((char *)&entry + offsetof(bs_entry, reserves), attributes->values.key, BS_KEY_BYTES);
    return write_short(out, &entry, file_number);
}

size_t bs_entry_encode_head(char *out, const bs_entry *entry, uint32_t file_number)
{
    bs_entry head = *entry;
    head.crc = head.extra = 0;
    return write_head(out, &head, entry->name, entry->name_length, file_number);
}

uint32_t bs_entry_checksum(const char *head, size_t size)
{
    uint32_t crc;
    memcpy(&crc, head + size - REC_7 + AT_CRC, sizeof crc);
    return crc;
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

uint32_t bs_entry_sum_full(const bs_entry *entry)
{
    return entry->sound ? entry->crc : bs_crc32c(0, entry->body, entry->body_size);
}

/* Returns whether beanstalkd could have written these numbers. */
static bool plausible(const bs_entry *entry)
{
    const int64_t most = (int64_t)UINT32_MAX * BS_SECOND;
    bool times = entry->delay >= 0 && entry->delay <= most && entry->ttr >= 0 && entry->ttr <= most &&
                 entry->created_at >= 0 && entry->at >= 0;
    uint32_t least_body = entry->name_length > 0 ? 2 : 0; /* its CR LF; the entry with the highest id has none */
    return times && entry->id <= INT64_MAX && entry->state <= BS_DELAYED && entry->body_size >= least_body &&
           entry->body_size <= INT32_MAX;
}

/* Returns -1, which is not plausible, for a time after BS_TIME_LAST. */
static int64_t in_nanoseconds(int64_t time, int version)
{
    if (version == BS_VERSION)
        return time > BS_TIME_LAST ? -1 : time;
    return time < 0 || time > BS_TIME_LAST / 1000 ? -1 : time * 1000; /* version 5 has microseconds */
}

/* Copies two parts of constant size, because a copy of variable size would take longer than the rest of the decoding.
 */
static void read_record(bs_entry *entry, const char *data, int version)
{
    enum { FIRST = 64 };
    char *to = (char *)entry;
    *entry = (bs_entry){0};
    memcpy(to, data, FIRST);
    memcpy(to + FIRST, data + FIRST, REC_5 - FIRST);
    if (version == BS_VERSION)
        memcpy(entry->mark, data + AT_MARK, sizeof entry->mark);
    entry->delay = in_nanoseconds(entry->delay, version);
    entry->ttr = in_nanoseconds(entry->ttr, version);
    entry->created_at = in_nanoseconds(entry->created_at, version);
    entry->at = in_nanoseconds(entry->at, version);
    entry->marked = entry->mark[0] == BS_ENTRY_MARK;
    entry->tag = (uint16_t)(entry->mark[1] | entry->mark[2] << 8);
}

/* Moves the values of a length entry from the fields that bs_entry_encode_length borrowed to their own. */
static void decode_length(bs_entry *entry)
{
    entry->length_of = entry->pri;
    entry->length = (uint64_t)entry->delay;
    entry->length_boot = (uint64_t)entry->ttr;
    entry->pri = 0;
    entry->delay = 0;
    entry->ttr = 0;
}

/* The same for an attribute entry. */
static void decode_attributes(bs_entry *entry)
{
    bs_job_attributes *values = &entry->attributes.values;
    entry->attributes.job = (uint64_t)entry->created_at + 1;
    values->window = (uint32_t)entry->delay;
    *(entry->kicks == KIND_ENDED_KEY ? &entry->attributes.until : &values->expires) = (uint32_t)entry->ttr;
    memcpy(values->key, (const char *)entry + offsetof(bs_entry, reserves), BS_KEY_BYTES);
    entry->delay = 0;
    entry->ttr = 0;
    entry->created_at = entry->at;
    entry->reserves = entry->timeouts = entry->releases = entry->buries = entry->kicks = 0;
}

uint32_t bs_entry_extra_of_end(uint32_t ended, uint32_t reserve_age)
{
    if (ended == BS_ENDED_DELETED)
        return reserve_age;
    if (ended <= BS_ENDED_MOVED)
        return NOT_DELETED | (ended - BS_ENDED_TRUNCATED);
    const uint32_t age = reserve_age <= ENDED_AGE_MAX ? reserve_age : 0;
    return NOT_DELETED | (ended - BS_ENDED_MOVED) << ENDED_SHIFT | age;
}

static int64_t without_entry(bs_entry *entry, int64_t result)
{
    *entry = (bs_entry){0};
    return result;
}

int64_t bs_entry_decode(const char *data, size_t length, int version, bs_entry *entry)
{
    size_t prefix = version == BS_VERSION ? sizeof(int32_t) : sizeof(uint64_t);
    size_t rec_size = version == BS_VERSION ? REC_7 : REC_5;
    int64_t name_length = 0;
    if (length < prefix)
        return without_entry(entry, length == 0 ? BS_ENTRY_END : BS_ENTRY_CUT);
    memcpy(&name_length, data, prefix); /* little-endian: the upper bytes are zero */
    if (name_length < 0 || name_length > BS_TUBE_NAME_MAX)
        return without_entry(entry, BS_ENTRY_BAD);
    size_t record_at = prefix + (size_t)name_length;
    if (length < record_at + rec_size)
        return without_entry(entry, BS_ENTRY_CUT);
    read_record(entry, data + record_at, version);
    if (entry->id == 0)
        return without_entry(entry, BS_ENTRY_END);
    entry->name_length = (uint32_t)name_length;
    entry->size = entry->head = record_at + rec_size;
    if (name_length > 0)
        entry->name = data + prefix;
    if (!plausible(entry) || (name_length > 0 && !bs_tube_name_valid(entry->name, entry->name_length)))
        return without_entry(entry, BS_ENTRY_BAD);
    if (name_length > 0)
        entry->size += entry->body_size;
    if (length < entry->size)
        return BS_ENTRY_CUT;
    if (name_length > 0) {
        entry->body = data + entry->head;
        if (memcmp(entry->body + entry->body_size - 2, "\r\n", 2) != 0)
            return BS_ENTRY_BAD;
    }
    if (entry->marked) {
        const uint32_t sum = bs_entry_sum_head(data, entry);
        entry->sound = bs_crc32c(sum, data + entry->head, entry->size - entry->head) == entry->crc;
    }
    if (!entry->sound)
        return (int64_t)entry->size;
    entry->reserve_age = entry->extra & BS_RESERVE_AGE_MAX;
    entry->kept = entry->state == BS_RESERVED && entry->extra == BS_ENTRY_KEPT;
    if (entry->state == BS_INVALID && entry->extra & NOT_DELETED) {
        const uint32_t by_policy = entry->extra >> ENDED_SHIFT & ENDED_MASK;
        entry->ended = by_policy ? BS_ENDED_MOVED + by_policy : BS_ENDED_TRUNCATED + (entry->extra & 1);
        entry->reserve_age &= by_policy ? ENDED_AGE_MAX : 0;
    }
    if (!bs_entry_has_no_job(entry))
        return (int64_t)entry->size;
    if (entry->pri > 0)
        decode_length(entry);
    else if (entry->kicks == KIND_ATTRIBUTES || (entry->kicks == KIND_ENDED_KEY && entry->ttr > 0))
        decode_attributes(entry);
    return (int64_t)entry->size;
}

int64_t bs_entry_event_at(const bs_entry *entry)
{
    if (!bs_entry_has_deadline(entry))
        return entry->sound ? entry->at : -1;
    int64_t before = entry->state == BS_DELAYED ? entry->delay : entry->ttr;
    if (entry->at < before)
        return -1;
    const int64_t event = entry->at - before;
    /* The delay of a put in milliseconds is rounded up to a second. */
    const bool rounded = entry->state == BS_DELAYED && !bs_entry_has_counted(entry) && event < entry->created_at &&
                         event > entry->created_at - BS_SECOND;
    return rounded ? entry->created_at : event;
}

int64_t bs_entry_reserved_at(const bs_entry *entry)
{
    return entry->reserve_age ? bs_entry_event_at(entry) - (int64_t)(entry->reserve_age - 1) : -1;
}

int64_t bs_entry_at(const bs_entry *entry, int64_t *log_time)
{
    int64_t at = entry->created_at;
    if (bs_entry_has_deadline(entry) || entry->sound)
        at = entry->at;
    else if (entry->state == BS_BURIED)
        at = *log_time < BS_TIME_LAST ? *log_time + 1 : BS_TIME_LAST;
    int64_t known = bs_entry_has_deadline(entry) ? entry->created_at : at;
    if (known > *log_time)
        *log_time = known;
    return at;
}
