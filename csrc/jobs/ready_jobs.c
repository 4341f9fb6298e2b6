#include "jobs/ready_jobs.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"

enum { SMALLEST = 8, KEEP = 1024 };

static bs_job **slot(const bs_ready *ready, uint32_t position)
{
    return &ready->ring[position & (ready->capacity - 1)];
}

bs_job *bs_ready_first(const bs_ready *ready)
{
    if (ready->length == 0)
        return ready->heap_first;
    bs_job *run_first = *slot(ready, ready->head);
    return ready->heap_first && bs_job_before(ready->heap_first, run_first) ? ready->heap_first : run_first;
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
    job->truncates = ready->truncates;
    if (!follows) {
        job->place = BS_NO_PLACE;
        bs_priority_push(&ready->heap, (bs_priority_entry){job->id, job->pri});
        if (!ready->heap_first || bs_job_before(job, ready->heap_first))
            ready->heap_first = job;
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

/* Returns the job of an entry, NULL if the entry is stale. `leaving` is about to leave. */
static bs_job *job_of(const bs_ready *ready, const bs_job_table *jobs, const bs_priority_entry *entry,
                      const bs_job *leaving)
{
    bs_job *job = bs_job_table_find(jobs, entry->id);
    const bool stale = !job || job == leaving || job->state != BS_READY || job->in_run || job->pri != entry->pri ||
                       job->truncates != ready->truncates;
    return stale ? NULL : job;
}

/* Drops the stale entries. They are half of the heap then, so each of them pays for one step. */
static void drop_stale(bs_ready *ready, const bs_job_table *jobs, const bs_job *leaving)
{
    uint32_t kept = 0;
    ready->rebuilds = ready->rebuilds + 1 < BS_NO_PLACE ? ready->rebuilds + 1 : 0;
    for (uint32_t i = 0; i < ready->heap.count; i++) {
        bs_job *job = job_of(ready, jobs, &ready->heap.entries[i], leaving);
        if (!job || job->place == ready->rebuilds)
            continue; /* only one entry of a job that left and returned is kept */
        job->place = ready->rebuilds;
        ready->heap.entries[kept++] = ready->heap.entries[i];
    }
    bs_priority_rebuild(&ready->heap, kept);
    ready->stale = 0;
}

/* Prefetches the jobs that can follow the first one, or with `table` what a search for them reads. */
static void prefetch_next(const bs_ready *ready, const bs_job_table *jobs, bool table)
{
    enum { CHILDREN = 4 };
    for (uint32_t i = 1; i <= CHILDREN && i < ready->heap.count; i++)
        (table ? bs_job_table_prefetch : bs_job_table_prefetch_job)(jobs, ready->heap.entries[i].id);
}

static void remove_from_heap(bs_ready *ready, const bs_job_table *jobs, bs_job *job)
{
    job->place = BS_NO_PLACE;
    if (job != ready->heap_first) {
        ready->stale++;
        if (ready->stale > KEEP && ready->stale > ready->heap.count / 2)
            drop_stale(ready, jobs, job);
        return;
    }
    prefetch_next(ready, jobs, false);
    bs_priority_pop(&ready->heap);
    ready->heap_first = NULL;
    while (ready->heap.count > 0 && !(ready->heap_first = job_of(ready, jobs, &ready->heap.entries[0], job))) {
        bs_priority_pop(&ready->heap);
        ready->stale--;
    }
    bs_job_prefetch(ready->heap_first);
    prefetch_next(ready, jobs, true);
}

void bs_ready_remove(bs_ready *ready, const bs_job_table *jobs, bs_job *job)
{
    if (!job->in_run) {
        remove_from_heap(ready, jobs, job);
        return;
    }
    assert(*slot(ready, job->place) == job);
    *slot(ready, job->place) = NULL;
    job->place = BS_NO_PLACE;
    job->in_run = 0;
    ready->holes++;
    trim(ready);
    if (ready->length > 1)
        bs_job_prefetch(*slot(ready, ready->head + 1));
    if (ready->holes > KEEP && ready->holes > ready->length / 2)
        close_holes(ready);
}

void bs_ready_free(bs_ready *ready)
{
    free(ready->ring);
    bs_priority_free(&ready->heap);
    *ready = (bs_ready){0};
}
