/* Reserves that no binlog entry records yet.
 *
 * Most jobs are deleted, released or buried soon after the reserve, and that entry can record the time of the reserve.
 * A reserve gets an entry of its own only after a while, or when something else happens to the job. Jobs are looked up
 * when their time has come; they may be gone by then.
 */
#include "base/ring.h"
#include "binlog/binlog_private.h"

enum { SMALLEST = 64 };

static bs_pending_reserve *pending_at(const bs_pending_reserves *reserves, uint32_t index)
{
    return &reserves->ring[bs_ring_at(reserves->head, index, reserves->capacity)];
}

/* Returns when the first job was reserved, INT64_MAX without any. */
static int64_t first_since(const bs_pending_reserves *reserves)
{
    return reserves->count ? pending_at(reserves, 0)->since : INT64_MAX;
}

static int64_t reserved_since(const bs_job *job)
{
    return job->at - (int64_t)job->ttr * BS_SECOND;
}

void bs_binlog_reserved(bs_binlog *binlog, bs_job *job)
{
    if (!binlog || !binlog->history)
        return;
    job->reserve_written = 0;
    bs_pending_reserves *reserves = &binlog->pending_reserves;
    if (reserves->count == reserves->capacity)
        reserves->ring =
            bs_ring_must_grow(reserves->ring, &reserves->head, &reserves->capacity, SMALLEST, sizeof *reserves->ring);
    *pending_at(reserves, reserves->count++) = (bs_pending_reserve){job->id, reserved_since(job)};
}

uint32_t bs_binlog_reserve_age(const bs_binlog *binlog, const bs_job *job, bs_now now)
{
    if (!binlog || !binlog->history || job->state != BS_RESERVED || job->reserve_written)
        return 0;
    const int64_t held = now.mono - reserved_since(job);
    return held >= 0 && held < BS_RESERVE_AGE_MAX ? (uint32_t)held + 1 : 0;
}

void bs_binlog_write_reserves_until(bs_binlog *binlog, int64_t until, bs_now now)
{
    bs_pending_reserves *reserves = &binlog->pending_reserves;
    while (first_since(reserves) <= until) {
        const bs_pending_reserve pending = *pending_at(reserves, 0);
        reserves->head++;
        reserves->count--;
        bs_job *job = bs_job_table_find(binlog->jobs, pending.id);
        if (job && job->state == BS_RESERVED && !job->reserve_written && reserved_since(job) == pending.since)
            bs_binlog_append_deferred(binlog, job, 0, now);
    }
}

void bs_binlog_write_pending_reserves(bs_binlog *binlog, bs_now now)
{
    if (binlog)
        bs_binlog_write_reserves_until(binlog, now.mono - BS_PENDING_RESERVE_NS, now);
}

int64_t bs_binlog_next_round(const bs_binlog *binlog)
{
    if (!binlog)
        return INT64_MAX;
    const int64_t first = first_since(&binlog->pending_reserves);
    const int64_t deferred = first == INT64_MAX ? INT64_MAX : first + BS_PENDING_RESERVE_NS;
    const bool requests = binlog->file_failed && binlog->files_requested == 0;
    return requests && binlog->retry_file_at < deferred ? binlog->retry_file_at : deferred;
}
