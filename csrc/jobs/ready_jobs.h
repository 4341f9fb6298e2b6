/* The ready jobs of one tube, by (priority, id).
 *
 * Most jobs leave in the order of arrival: same priority, rising ids. These form a *run*, a ring of pointers: a job
 * that sorts after the last one is appended, and jobs leave from the front, both in O(1) without touching other jobs.
 * Every other job goes to a heap. The first job is the smaller of the first ones of run and heap.
 *
 * A job that leaves from the middle of the heap leaves a *stale* entry there, which is dropped when it becomes the
 * first one. The first entry is never stale. A job that leaves and returns may have two entries; `stale` is the
 * number of entries beyond one for each job.
 */
#ifndef BS_READY_H
#define BS_READY_H

#include "jobs/job.h"
#include "jobs/priority_heap.h"

typedef struct {
    bs_job **ring;
    uint32_t head;      /* positions count up and wrap; the ring index is position & (capacity - 1) */
    uint32_t length;    /* positions in use, including holes; neither the first nor the last is a hole */
    uint32_t holes;
    uint32_t capacity;  /* a power of two, or 0 */
    bs_priority_heap heap;
    bs_job *heap_first; /* of the first entry of the heap; NULL if that is empty */
    uint32_t stale;
    uint32_t rebuilds;
    uint32_t truncates; /* of the tube, so far */
} bs_ready;

static inline uint32_t bs_ready_count(const bs_ready *ready)
{
    return ready->length - ready->holes + ready->heap.count - ready->stale;
}

/* NULL if empty. */
bs_job *bs_ready_first(const bs_ready *ready);
void bs_ready_add(bs_ready *ready, bs_job *job);

/* `jobs` has all jobs. */
void bs_ready_remove(bs_ready *ready, const bs_job_table *jobs, bs_job *job);
void bs_ready_free(bs_ready *ready);

/* Returns whether `a` is reserved before `b`. */
static inline bool bs_job_before(const bs_job *a, const bs_job *b)
{
    return a->pri != b->pri ? a->pri < b->pri : a->id < b->id;
}

#endif
