#include "jobs/expiry.h"

#include "base/clock.h"

enum { STALE_ALLOWED = 64 };

/* The second of the wall clock from which the job is expired. */
static uint32_t second_of(const bs_job *job)
{
    const int64_t since = job->created_at > 0 ? job->created_at : 0;
    const uint64_t second = (uint64_t)(since + BS_SECOND - 1) / BS_SECOND + bs_expiry_of(job);
    return second < UINT32_MAX ? (uint32_t)second : UINT32_MAX;
}

static int64_t time_of(uint32_t second)
{
    return second == UINT32_MAX ? INT64_MAX : (int64_t)second * BS_SECOND;
}

bool bs_expiry_reached(const bs_job *job, int64_t wall)
{
    return bs_expiry_of(job) && time_of(second_of(job)) <= wall;
}

/* Returns the job of an entry if it is still in the tube, or NULL. */
static bs_job *job_of(const bs_tube *tube, const bs_job_table *jobs, uint64_t id)
{
    bs_job *job = bs_job_table_find(jobs, id);
    return job && job->tube == tube ? job : NULL;
}

static void drop_stale(bs_tube *tube, const bs_job_table *jobs)
{
    bs_priority_heap *heap = &tube->expiring;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < heap->count; i++)
        if (job_of(tube, jobs, heap->entries[i].id))
            heap->entries[kept++] = heap->entries[i];
    bs_priority_rebuild(heap, kept);
}

void bs_expiry_add(bs_tube *tube, const bs_job_table *jobs, const bs_job *job)
{
    if (tube->expiring.count / 2 > tube->jobs + STALE_ALLOWED)
        drop_stale(tube, jobs);
    bs_priority_push(&tube->expiring, (bs_priority_entry){.id = job->id, .pri = second_of(job)});
}

bs_job *bs_expiry_take(bs_tube *tube, const bs_job_table *jobs, int64_t wall, uint32_t *most)
{
    for (; *most > 0 && bs_expiry_next(tube) <= wall; --*most) {
        bs_job *job = job_of(tube, jobs, tube->expiring.entries[0].id);
        bs_priority_pop(&tube->expiring);
        if (job && (job->state == BS_READY || job->state == BS_DELAYED)) {
            --*most;
            return job;
        }
    }
    return NULL;
}

int64_t bs_expiry_next(const bs_tube *tube)
{
    return tube->expiring.count ? time_of(tube->expiring.entries[0].pri) : INT64_MAX;
}
