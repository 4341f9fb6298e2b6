/* One entry of a binlog file as bytes: version 7 for reading and writing, version 5 for reading
 * (docs/formats/binlog.md).
 *
 * Two fields use bytes that C beanstalkd ignores and copies when it rewrites a job:
 *   offset 12 of Jobrec, 4 bytes   CRC-32C of the whole entry, with these 4 bytes as zeros
 *   offset 77 of Jobrec, 3 bytes   BS_ENTRY_MARK, then the low 16 bits of the number of the file written to
 * The file number distinguishes a damaged entry of this server from one that C beanstalkd wrote later with the fields
 * copied: it never appends to an existing file, so the number does not match the file.
 * `deadline_at` of Ready, Buried and Invalid entries is the time of the event, and
 *   offset 36 of Jobrec, 4 bytes   0, or 1 and the nanoseconds from the job's reserve, if no earlier entry records it,
 *                                  to this event. In an Invalid entry with another end than BS_ENDED_DELETED, the
 *                                  highest bit is 1, the next two are BS_ENDED_ - 1, and the others the nanoseconds.
 *                                  In a Reserved entry BS_ENTRY_KEPT if the reservation lasts beyond a stop of the server
 * An Invalid entry without a body size is none of a job: it records the highest id, or the length of an earlier file
 * and the boot for which that is valid if nothing was synced, or it is an attribute entry. An attribute entry holds the
 * attributes of a job. It precedes the full entry of that job directly, in the same file, and otherwise has no effect.
 * The entry of an ended key has the same fields (unique_keys.h).
 */
#ifndef BS_ENTRY_H
#define BS_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jobs/job.h"
#include "jobs/tube.h"

enum {
    BS_ENTRY_HEADER = 4,  /* bytes of the version at the start of a file */
    BS_ENTRY_SHORT = 84,  /* bytes of a short entry, version 7 */
    BS_ENTRY_HEAD_MAX = BS_ENTRY_SHORT + BS_TUBE_NAME_MAX + 4, /* before the body, either version */
    BS_ENTRY_MARK = 0xBD, /* no valid state, so that a shifted entry is not valid */
    BS_VERSION = 7,
    BS_VERSION_5 = 5
};

/* The last valid wall time and deadline, in the year 2262. Adding a nanosecond does not overflow. */
#define BS_TIME_LAST (INT64_MAX - 1)

/* The content of an attribute entry, or of the entry of an ended key. */
typedef struct {
    uint64_t job;
    bs_job_attributes values;
    uint32_t until; /* of an ended key, which is the only value: bs_ended_key; else 0 */
} bs_entry_attributes;

/* It begins with Jobrec as version 7 has it. */
typedef struct {
    uint64_t id;
    uint32_t pri;
    uint32_t crc;
    int64_t delay;      /* nanoseconds */
    int64_t ttr;        /* nanoseconds */
    uint32_t body_size; /* with CR LF; also in short entries */
    uint32_t extra;     /* as in the file; decoded: `ended` and `reserve_age` */
    int64_t created_at; /* wall */
    int64_t at;         /* deadline_at, wall */
    uint32_t reserves;
    uint32_t timeouts;
    uint32_t releases;
    uint32_t buries;
    uint32_t kicks;
    uint8_t state;
    uint8_t mark[3];    /* as in the file; decoded: `marked` and `tag` */

    const char *name;   /* in the given bytes; NULL in a short entry */
    const char *body;   /* in the given bytes, or NULL */
    size_t size;        /* bytes of the whole entry */
    size_t head;        /* bytes of it before the body */
    uint32_t name_length;
    uint32_t ended;     /* Invalid: BS_ENDED_ */
    uint32_t reserve_age; /* 0, or see above: bs_entry_reserved_at */
    uint32_t length_of; /* 0, or the number of a complete file: bs_entry_encode_length */
    uint64_t length;    /* bytes of that file up to the end of its last entry */
    uint64_t length_boot; /* 0: they were on disk; else the only boot for which the length is valid (boot_id.h) */
    bs_entry_attributes attributes; /* `job` is 0: it is neither an attribute entry nor an ended key */
    bool kept;    /* Reserved: until `at`, whatever happens to the server */
    uint16_t tag; /* low bits of the number of the file it was written to */
    bool marked;
    bool sound; /* marked, and the checksum is right */
} bs_entry;

/* How a job ended: a client deleted or moved it, its tube was truncated, or a policy of its tube acted on it. */
enum {
    BS_ENDED_DELETED,
    BS_ENDED_TRUNCATED,
    BS_ENDED_MOVED,         /* by a client to another tube, as another job */
    BS_ENDED_EXPIRED,
    BS_ENDED_DEAD_LETTERED, /* moved by the policy after too many reserves */
    BS_ENDED_DISCARDED,     /* deleted after too many reserves */
    BS_ENDS
};

/* The words for them in documents, dumps and the history. */
extern const char *const bs_ended_names[BS_ENDS];

enum {
    BS_ENTRY_END = 0,  /* id 0, or no bytes */
    BS_ENTRY_CUT = -1, /* the bytes end inside the entry */
    BS_ENTRY_BAD = -2  /* no valid entry begins like this */
};

/* Returns the bytes of a job's full entry, version 7. */
static inline size_t bs_entry_full_size(const bs_job *job)
{
    return (size_t)BS_ENTRY_SHORT + job->tube->name_length + job->body_size;
}

/* Returns the bytes of that entry and of the attribute entry before it. */
static inline size_t bs_entry_put_size(const bs_job *job)
{
    return bs_entry_full_size(job) + (job->has_attributes ? BS_ENTRY_SHORT : 0);
}

/* Writes a version 7 entry to `out` and returns its size. `at` becomes deadline_at; `extra` is as in the file. */
size_t bs_entry_encode(char *out, const bs_job *job, uint8_t state, int64_t at, bool full, uint32_t extra,
                       uint32_t file_number);

/* Limit of the time since a reserve in `extra`; it takes all bits but the highest one. */
#define BS_RESERVE_AGE_MAX (UINT32_MAX >> 1)

/* The `extra` of a Reserved entry that is `kept`. */
#define BS_ENTRY_KEPT (UINT32_MAX - BS_RESERVE_AGE_MAX)

/* Returns the `extra` of an Invalid entry. A reserve that is too long ago for it is left out: unless the disk was full,
 * it has an entry of its own since BS_PENDING_RESERVE_NS. So is that of a job that was moved or truncated. */
uint32_t bs_entry_extra_of_end(uint32_t ended, uint32_t reserve_age);

/* Writes an Invalid short entry that records only an id. */
size_t bs_entry_encode_last_id(char *out, uint64_t id, int64_t at, uint32_t file_number);

/* The recorded length of an earlier file. */
typedef struct {
    uint32_t file;  /* its number */
    uint64_t bytes; /* where its entries end */
    uint64_t boot;  /* as `length_boot` */
} bs_entry_file_length;

/* Writes an Invalid short entry that records the length of an earlier file in the otherwise unused fields `pri`,
 * `delay` and `ttr`. `id` must never have been given to a job: C beanstalkd ignores short entries of unknown jobs. */
size_t bs_entry_encode_length(char *out, uint64_t id, const bs_entry_file_length *length, int64_t at,
                              uint32_t file_number);

/* Writes such an entry. Its values are in fields that are otherwise unused: the job in `created_at`, window in `delay`,
 * expires or until in `ttr`, the key and the kind in the counters. `pri` is 0, unlike that of a length entry. `id` as
 * for a length. */
size_t bs_entry_encode_attributes(char *out, uint64_t id, const bs_entry_attributes *attributes, int64_t at,
                                  uint32_t file_number);

/* Returns the short entries that will end a job: its delete, and its ended key. */
static inline uint64_t bs_entry_owed(const bs_job *job)
{
    return job->has_attributes && bs_job_attributes_of(job)->window ? 2 : 1;
}

/* Returns whether it is an attribute entry. */
static inline bool bs_entry_has_attributes(const bs_entry *entry)
{
    return entry->attributes.job && !entry->attributes.until;
}

/* Writes the attribute entry of a job that has attributes. */
static inline size_t bs_entry_encode_attributes_of(char *out, uint64_t id, const bs_job *job, int64_t at,
                                                   uint32_t file_number)
{
    const bs_entry_attributes attributes = {.job = job->id, .values = *bs_job_attributes_of(job)};
    return bs_entry_encode_attributes(out, id, &attributes, at, file_number);
}

/* Returns whether the entry is none of a job: it records the highest id or a length, or it is an
 * attribute entry or that of an ended key. */
static inline bool bs_entry_has_no_job(const bs_entry *entry)
{
    return entry->name_length == 0 && entry->state == BS_INVALID && entry->body_size == 0;
}

/* Returns whether `at` is the end of the delay or of the TTR. */
static inline bool bs_entry_has_deadline(const bs_entry *entry)
{
    return entry->state == BS_DELAYED || entry->state == BS_RESERVED;
}

/* Returns whether one of the counters is not zero. */
static inline bool bs_entry_has_counted(const bs_entry *entry)
{
    return (entry->reserves | entry->timeouts | entry->releases | entry->buries | entry->kicks) != 0;
}

/* Decodes the entry at the start of `data`. Returns its size or one of the values above. After BS_ENTRY_CUT the fields
 * are set if only the body is incomplete. */
int64_t bs_entry_decode(const char *data, size_t length, int version, bs_entry *entry);

/* Returns the sum by which a full entry is recognized when its body is read again: its checksum if it is sound, else
 * that of its body, which must be in memory. */
uint32_t bs_entry_sum_full(const bs_entry *entry);

/* --- entries whose body is too large to be in memory as a whole --- */

/* Returns the checksum of the head at `data`. bs_crc32c continues it over the body; the result must equal `entry->crc`.
 */
uint32_t bs_entry_sum_head(const char *data, const bs_entry *entry);

/* Writes the head of a full version 7 entry, at most BS_ENTRY_HEAD_MAX bytes, and returns its size. bs_entry_seal_head
 * adds the checksum of head and body. */
size_t bs_entry_encode_head(char *out, const bs_entry *entry, uint32_t file_number);
void bs_entry_seal_head(char *head, size_t size, uint32_t crc);

/* Returns the checksum that bs_entry_seal_head has added. */
uint32_t bs_entry_checksum(const char *head, size_t size);

/* --- times --- */

/* Returns the wall time of a deadline `left` nanoseconds after `wall`, at most BS_TIME_LAST. */
static inline int64_t bs_entry_deadline(int64_t left, int64_t wall)
{
    return left > BS_TIME_LAST - wall ? BS_TIME_LAST : wall + left;
}

/* Returns the wall time of the event, -1 if the entry does not record it. */
int64_t bs_entry_event_at(const bs_entry *entry);

/* Returns the wall time of the job's reserve if only this entry records it, else -1. */
int64_t bs_entry_reserved_at(const bs_entry *entry);

/* Returns a job's `at` after this entry, wall: its deadline, or the time of the event. `log_time` is the latest time of
 * the entries so far, and is updated; it replaces the time of burying, which C beanstalkd does not record. */
int64_t bs_entry_at(const bs_entry *entry, int64_t *log_time);

#endif
