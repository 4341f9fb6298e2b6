/* A job, and the table of jobs by id. Independent of queues, clients and files. */
#ifndef BS_JOB_H
#define BS_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/heap.h"
#include "jobs/key_table.h"

typedef struct bs_tube bs_tube;

/* The numbers of the binlog's Jobrec. */
enum { BS_INVALID = 0, BS_READY = 1, BS_RESERVED = 2, BS_BURIED = 3, BS_DELAYED = 4 };

enum { BS_JOB_GEN_BITS = 9, BS_JOB_GEN_MASK = (1 << BS_JOB_GEN_BITS) - 1 };

/* One allocation with its body, or with a bs_body_place if the body is `separate`; then its attributes, if it has any.
 * The fields are ordered without padding, because a server may hold millions of jobs. */
typedef struct bs_job {
    uint64_t id;
    int64_t created_at;           /* wall */
    int64_t at;                   /* Delayed, Reserved: deadline, mono; Ready, Buried: since when, wall; before its
                                   * insert: 0, or the exact delay, nanoseconds */
    bs_tube *tube;
    uint32_t pri;
    uint32_t delay;               /* seconds */
    uint32_t ttr;                 /* seconds */
    uint32_t body_size;           /* bytes, with CR LF */
    uint32_t reserves;
    uint32_t timeouts;
    uint32_t releases;
    uint32_t buries;
    uint32_t kicks;
    uint32_t place;               /* in its heap or run */
    union {
        uint32_t session;         /* Reserved: slot of the holder */
        uint32_t truncates;       /* else: bs_ready.truncates of its tube when the job got its state */
    };
    uint32_t file : 31;           /* number of the binlog file with its full entry, or 0 */
    uint32_t separate : 1;        /* the body has an allocation of its own, and can be dropped from memory */
    uint16_t state : 3;
    uint16_t in_run : 1;          /* in the run of ready_jobs.h, not in the heap */
    uint16_t has_short : 1;       /* the last short entry supersedes parts of the full one */
    uint16_t reserve_written : 1; /* Reserved: the reserve has an entry, or needs none */
    uint16_t has_attributes : 1;  /* bs_job_attributes follow */
    uint16_t gen : 9;             /* binlog generation of its last entry, modulo 1 << BS_JOB_GEN_BITS */
    char inline_body[];           /* unless it is `separate` */
} bs_job;

/* A body in memory: an allocation of its own. */
typedef struct bs_body {
    struct bs_body *previous; /* in the list of body_memory.h */
    struct bs_body *next;
    bs_job *job;              /* NULL: not in the list */
    char bytes[];
} bs_body;

/* Where a separate body is. */
typedef struct {
    bs_body *loaded; /* NULL: dropped, only in the binlog */
    uint32_t offset; /* of the full entry in its file, or BS_NO_OFFSET */
    uint32_t sum;    /* of the full entry: bs_entry_sum_full */
} bs_body_place;

#define BS_NO_OFFSET UINT32_MAX

/* What `with` has set for the life of a job. Jobs without attributes have no memory for them. */
typedef struct {
    uint8_t key[BS_KEY_BYTES]; /* unique_keys.h; zeros: none */
    uint32_t window;           /* seconds after the job's end for which it keeps its key */
    uint32_t expires;          /* seconds after its put; deletes a job that is ready or delayed; 0: never */
} bs_job_attributes;

/* Of a job with a separate body. */
static inline bs_body_place *bs_job_body_place(const bs_job *job)
{
    return (bs_body_place *)(job + 1);
}

static inline bool bs_job_has_body(const bs_job *job)
{
    return !job->separate || bs_job_body_place(job)->loaded;
}

/* Returns the body, which must be in memory. */
static inline char *bs_job_body(const bs_job *job)
{
    return job->separate ? bs_job_body_place(job)->loaded->bytes : (char *)job->inline_body;
}

/* Of a job with attributes. */
bs_job_attributes *bs_job_attributes_of(const bs_job *job);

/* Returns whether a job with attributes has a key. */
bool bs_job_key_is_set(const bs_job *job);

static inline bool bs_job_has_key(const bs_job *job)
{
    return job->has_attributes && bs_job_key_is_set(job);
}

extern const bs_heap_kind bs_job_kind;

/* Returns the memory of a job with such a body: the allocation, 8 bytes in its tube, about 14 in the table of ids. */
uint64_t bs_job_bytes(uint32_t body_size);

/* The same for this job, without a separate body. */
uint64_t bs_job_record_bytes(const bs_job *job);

/* Allocates a job, zeroed, with space for its body, or with a separate body that is not loaded, and for attributes. NULL
 * without memory. */
bs_job *bs_job_new(uint64_t id, uint32_t body_size, bool separate, bool attributes);

/* Frees a job and its body, which is in no list. */
void bs_job_free(bs_job *job);

/* Prefetches a job that was not touched since its put, and the start of its body. NULL is allowed. */
static inline void bs_job_prefetch(const bs_job *job)
{
    enum { LINE = 64, LINES = 3 };
    for (int i = 0; i < LINES; i++)
        __builtin_prefetch((const char *)job + i * LINE);
}

/* For qsort over bs_job *: by id; by the time of burying. */
int bs_job_compare_ids(const void *a, const void *b);
int bs_job_compare_buried(const void *a, const void *b);

/* Jobs by id: open addressing; does not own jobs. All zeros is an empty table. */
typedef struct bs_job_table {
    bs_job **slots;
    uint8_t *strays;   /* distance of each job from its home slot, capped at 255, so that a search reads no neighbour */
    size_t count;
    size_t capacity;
    uint64_t known_id; /* of the last bs_job_table_seek, and its slot */
    size_t known_at;
} bs_job_table;

bs_job *bs_job_table_find(const bs_job_table *table, uint64_t id);

/* Finds the job and remembers its slot, because a command searches for its job more than once. */
bs_job *bs_job_table_seek(bs_job_table *table, uint64_t id);

/* Prefetches the memory that a search for this id will read. */
void bs_job_table_prefetch(const bs_job_table *table, uint64_t id);

/* Prefetches the first job at the distance of this id. Most likely it has this id, which is not compared. */
void bs_job_table_prefetch_job(const bs_job_table *table, uint64_t id);

/* 0 or -ENOMEM. The id must not be in the table. */
int bs_job_table_add(bs_job_table *table, bs_job *job);
void bs_job_table_remove(bs_job_table *table, const bs_job *job);
void bs_job_table_free(bs_job_table *table);

#endif
