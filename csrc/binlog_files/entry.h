/* One entry of a binlog file as bytes: version 7 both ways, version 5 for reading (docs/formats/binlog.md).
 *
 * Two things are added in bytes that C beanstalkd leaves unused and copies along when it rewrites a job:
 *   offset 12 of Jobrec, 4 bytes   CRC-32C of the whole entry, with these 4 bytes as zeros
 *   offset 77 of Jobrec, 3 bytes   BS_ENTRY_MARK, then the low 16 bits of the number of the file written to
 * The file number tells a rotten entry of ours from one that C beanstalkd wrote later with our bytes copied along: it
 * never adds to an existing file, so the number does not fit the file it is found in.
 * Also ours: `deadline_at` of Ready, Buried and Invalid entries is the time of the event, and
 *   offset 36 of Jobrec, 4 bytes   the highest bit: BS_ENDED_TRUNCATED, in Invalid entries; the others: 0, or 1 and the
 *                                  nanoseconds from the job's reserve, which no entry before tells of, to this event
 * An Invalid entry without a body size is of no job: it keeps the highest id, or tells the length of an earlier file, and
 * the boot for which that holds if nothing was synced.
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
    BS_ENTRY_MARK = 0xBD, /* no state, so that a shifted entry is not taken for a sound one */
    BS_VERSION = 7,
    BS_VERSION_5 = 5
};

/* The last wall time and the last deadline there are, in the year 2262. A nanosecond can be added to it. */
#define BS_TIME_LAST (INT64_MAX - 1)

typedef struct {
    uint64_t id;
    int64_t delay;      /* nanoseconds */
    int64_t ttr;        /* nanoseconds */
    int64_t created_at; /* wall */
    int64_t at;         /* deadline_at, wall */
    const char *name;   /* in the given bytes; NULL in a short entry */
    const char *body;   /* in the given bytes, or NULL */
    size_t size;        /* bytes of the whole entry */
    size_t head;        /* bytes of it before the body */
    uint32_t name_length;
    uint32_t body_size; /* with CR LF; also said in short entries */
    uint32_t pri;
    uint32_t reserves;
    uint32_t timeouts;
    uint32_t releases;
    uint32_t buries;
    uint32_t kicks;
    uint32_t crc;
    uint32_t ended;     /* Invalid: BS_ENDED_ */
    uint32_t reserve_age;    /* 0, or see above: bs_entry_reserved_at */
    uint32_t length_of; /* 0, or the number of a complete file: bs_entry_encode_length */
    uint64_t length;    /* bytes of that file up to the end of its last entry */
    uint64_t length_boot; /* 0: they were on disk then; else the only boot for which that holds (boot_id.h) */
    uint16_t tag; /* low bits of the file number it was written to */
    uint8_t state;
    bool marked;
    bool sound; /* marked, and the checksum is right */
} bs_entry;

/* How a job has ended: a client deleted it, or an operator emptied its tube. */
enum { BS_ENDED_DELETED, BS_ENDED_TRUNCATED };

enum {
    BS_ENTRY_END = 0,  /* id 0, or no bytes */
    BS_ENTRY_CUT = -1, /* the bytes end inside the entry */
    BS_ENTRY_BAD = -2  /* no entry can look like this */
};

/* Bytes of a job's full entry, version 7. */
static inline size_t bs_entry_full_size(const bs_job *job)
{
    return (size_t)BS_ENTRY_SHORT + job->tube->name_length + job->body_size;
}

/* Writes a version 7 entry to `out`. `at` is what deadline_at gets; `reserve_age` is as in bs_entry. Returns its size. */
size_t bs_entry_encode(char *out, const bs_job *job, uint8_t state, int64_t at, bool full, uint32_t reserve_age,
                       uint32_t file_number);

/* The short Invalid entry of a job that ended like this, BS_ENDED_. */
size_t bs_entry_encode_end(char *out, const bs_job *job, uint32_t ended, int64_t at, uint32_t reserve_age,
                           uint32_t file_number);

/* What `reserve_age` can say. */
#define BS_RESERVE_AGE_MAX (UINT32_MAX >> 1)

/* An Invalid short entry that says nothing but an id. */
size_t bs_entry_encode_last_id(char *out, uint64_t id, int64_t at, uint32_t file_number);

/* What such an entry says of an earlier file. */
typedef struct {
    uint32_t file;  /* its number */
    uint64_t bytes; /* where its entries end */
    uint64_t boot;  /* as `length_boot` */
} bs_entry_file_length;

/* An Invalid short entry that says where the entries of a file before this one end. `id` is one that was never given, so
 * that C beanstalkd, which skips a short entry of a job it does not know, skips this one. In `pri`, `delay` and `ttr`,
 * which mean nothing else here. */
size_t bs_entry_encode_length(char *out, uint64_t id, const bs_entry_file_length *length, int64_t at,
                              uint32_t file_number);

/* Whether an entry is what one of these two writes, and so of no job, whichever folder has the one of this id. */
static inline bool bs_entry_is_last_id(const bs_entry *entry)
{
    return entry->name_length == 0 && entry->state == BS_INVALID && entry->body_size == 0;
}

/* The entry at the start of `data`: its size, or one of the values above. Fields are set for BS_ENTRY_CUT too when
 * only the body is missing. */
int64_t bs_entry_decode(const char *data, size_t length, int version, bs_entry *entry);

/* --- entries whose body is too large to be in memory as a whole --- */

/* The checksum of the head at `data`; bs_crc32c goes on from it over the body, and `entry->crc` is what comes out. */
uint32_t bs_entry_sum_head(const char *data, const bs_entry *entry);

/* Writes the head of a full version 7 entry with these fields, at most BS_ENTRY_HEAD_MAX bytes. Returns its size. It
 * lacks its checksum until bs_entry_seal_head gets what bs_crc32c makes of head and body. */
size_t bs_entry_encode_head(char *out, const bs_entry *entry, uint32_t file_number);
void bs_entry_seal_head(char *head, size_t size, uint32_t crc);

/* --- times --- */

/* The wall time of a deadline `left` nanoseconds after `wall`: never after BS_TIME_LAST, which a far clock and a long
 * delay together can pass. */
static inline int64_t bs_entry_deadline(int64_t left, int64_t wall)
{
    return left > BS_TIME_LAST - wall ? BS_TIME_LAST : wall + left;
}

/* When it happened, wall; -1 if the entry does not tell. */
int64_t bs_entry_event(const bs_entry *entry);

/* When the job was reserved that is no more, wall; -1 unless this entry is the only one that tells. */
int64_t bs_entry_reserved_at(const bs_entry *entry);

/* What a job's `at` is after this entry, wall: its deadline, or the time of the event. `log_time` is the latest time
 * that the entries before it tell, and is raised: C beanstalkd's have no time of burying, and theirs is just after. */
int64_t bs_entry_at(const bs_entry *entry, int64_t *log_time);

#endif
