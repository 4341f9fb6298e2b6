#include "jobs/ready_jobs.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"

enum { SMALLEST = 8, KEEP = 1024 };

/* Priority, then the lower 32 bits of the id relative to heap_base. Ids outside of that range are clamped; the heap
 * compares the ids themselves when keys are equal. */
static int64_t heap_key(const bs_ready *ready, const bs_job *job)
{
    uint64_t low = job->id < ready->heap_base ? 0 : job->id - ready->heap_base;
    if (low > UINT32_MAX)
        low = UINT32_MAX;
    /* Flips the sign bit, so that all priorities sort as signed numbers. */
    return (int64_t)(((uint64_t)job->pri << 32 | low) ^ UINT64_C(1) << 63);
}

static bs_job **slot(const bs_ready *ready, uint32_t position)
{
    return &ready->ring[position & (ready->capacity - 1)];
}

bs_job *bs_ready_first(const bs_ready *ready)
{
    bs_job *heaped = bs_heap_first(&ready->heap);
    if (ready->length == 0)
        return heaped;
    bs_job *running = *slot(ready, ready->head);
    return heaped && bs_job_before(heaped, running) ? heaped : running;
}

static void grow(bs_ready *ready)
{
    bs_ready grown = *ready;
    grown.capacity = ready->capacity ? ready->capacity * 2 : SMALLEST;
    assert(grown.capacity > ready->capacity);
    grown.ring = bs_must_realloc(NULL, grown.capacity, sizeof *grown.ring);
    for (uint32_t i = 0; i < ready->length; i++)
        *slot(&grown, ready->head + i) = *slot(ready, ready->head + i);
    free(ready->ring);
    *ready = grown;
}

void bs_ready_add(bs_ready *ready, bs_job *job)
{
    bool follows = ready->length == 0 || bs_job_before(*slot(ready, ready->head + ready->length - 1), job);
    job->in_run = follows;
    if (!follows) {
        if (ready->heap.count == 0)
            ready->heap_base = job->id > UINT32_MAX / 2 ? job->id - UINT32_MAX / 2 : 0;
        bs_heap_push(&ready->heap, &bs_job_kind, heap_key(ready, job), job);
        return;
    }
    if (ready->length == ready->capacity)
        grow(ready);
    job->place = ready->head + ready->length++;
    *slot(ready, job->place) = job;
}

/* Closes the holes. They are half of the run then, so each removal pays for one step. */
static void close_holes(bs_ready *ready)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < ready->length; i++) {
        bs_job *job = *slot(ready, ready->head + i);
        if (!job)
            continue;
        job->place = ready->head + kept++;
        *slot(ready, job->place) = job;
    }
    ready->length = kept;
    ready->holes = 0;
}

static void trim(bs_ready *ready)
{
    while (ready->length && !*slot(ready, ready->head)) {
        ready->head++;
        ready->length--;
        ready->holes--;
    }
    while (ready->length && !*slot(ready, ready->head + ready->length - 1)) {
        ready->length--;
        ready->holes--;
    }
    if (ready->length == 0 && ready->capacity > KEEP) {
        free(ready->ring);
        ready->ring = NULL;
        ready->capacity = 0;
    }
}

/* Prefetches the next job to leave, which was not touched since its put. */
static void expect(const bs_job *job)
{
    enum { LINE = 64, LINES = 3 };
    if (job)
        for (int i = 0; i < LINES; i++)
            __builtin_prefetch((const char *)job + i * LINE);
}

void bs_ready_remove(bs_ready *ready, bs_job *job)
{
    if (!job->in_run) {
        bs_heap_remove(&ready->heap, &bs_job_kind, job->place);
        expect(bs_heap_first(&ready->heap));
        return;
    }
    assert(*slot(ready, job->place) == job);
    *slot(ready, job->place) = NULL;
    job->place = BS_NO_PLACE;
    job->in_run = 0;
    ready->holes++;
    trim(ready);
    if (ready->length > 1)
        expect(*slot(ready, ready->head + 1));
    if (ready->holes > KEEP && ready->holes > ready->length / 2)
        close_holes(ready);
}

void bs_ready_free(bs_ready *ready)
{
    free(ready->ring);
    bs_heap_free(&ready->heap);
    *ready = (bs_ready){0};
}
