/* A job, and the table that finds one by its id. Knows nothing of queues, clients or files. */
#ifndef BS_JOB_H
#define BS_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/heap.h"

typedef struct bs_tube bs_tube;

/* States have the numbers of the binlog's Jobrec. */
enum { BS_INVALID = 0, BS_READY = 1, BS_RESERVED = 2, BS_BURIED = 3, BS_DELAYED = 4 };

enum { BS_JOB_GEN_BITS = 10, BS_JOB_GEN_MASK = (1 << BS_JOB_GEN_BITS) - 1 };

/* One allocation with its body. Its size is felt: a million jobs cost a million of these, so the fields are ordered
 * to leave no hole before the body. */
typedef struct {
    uint64_t id;
    int64_t created_at; /* wall */
    int64_t at;         /* Delayed, Reserved: deadline on the monotonic clock; Ready, Buried: since when, wall */
    bs_tube *tube;
    uint32_t pri;
    uint32_t delay;     /* seconds */
    uint32_t ttr;       /* seconds */
    uint32_t body_size; /* bytes, with CR LF */
    uint32_t reserves;
    uint32_t timeouts;
    uint32_t releases;
    uint32_t buries;
    uint32_t kicks;
    uint32_t place;     /* in the heap or run that holds it */
    uint32_t session;   /* Reserved: slot of the session that holds it */
    uint32_t file;      /* number of the binlog file with its full entry, or 0 */
    uint16_t state : 3;
    uint16_t in_run : 1;    /* ready_jobs.h: in the run, not in the heap */
    uint16_t has_short : 1; /* binlog: a short entry says more than the full one */
    uint16_t reserve_written : 1;      /* Reserved: an entry tells of that, or is not to */
    uint16_t gen : 10;      /* binlog generation of its last entry, cut to BS_JOB_GEN_BITS */
    char body[];
} bs_job;

extern const bs_heap_kind bs_job_kind;

/* What a job with such a body takes of memory: its allocation, 8 bytes in its tube and about 14 in the table of ids. */
uint64_t bs_job_bytes(uint32_t body_size);

/* A job with room for its body; all else is zero. NULL when memory ran out. Free it with free(). */
bs_job *bs_job_new(uint64_t id, uint32_t body_size);

/* For qsort over bs_job *: by id; in the order of burying, for jobs whose `at` is the time of that. */
int bs_job_compare_ids(const void *a, const void *b);
int bs_job_compare_buried(const void *a, const void *b);

/* Jobs by id: open addressing, not owning. All zeros is an empty table. */
typedef struct {
    bs_job **slots;
    uint8_t *strays; /* how far each job lies behind its home slot, at most 255: neighbours need not be looked at */
    size_t count;
    size_t capacity;
    uint64_t known_id; /* looked for by bs_job_table_seek, and where it was */
    size_t known_at;
} bs_job_table;

bs_job *bs_job_table_find(const bs_job_table *table, uint64_t id);

/* The same, and knows its place from then on: a command looks for its job more than once. */
bs_job *bs_job_table_seek(bs_job_table *table, uint64_t id);

/* Says that this id will be looked for soon: what is then read is fetched meanwhile. */
void bs_job_table_expect(const bs_job_table *table, uint64_t id);

/* 0 or -ENOMEM. The id must not be in the table. */
int bs_job_table_add(bs_job_table *table, bs_job *job);
void bs_job_table_remove(bs_job_table *table, const bs_job *job);
void bs_job_table_free(bs_job_table *table);

#endif
