#include "queue/tube_policies.h"

#include <string.h>

#include "base/clock.h"
#include "binlog_files/entry.h"
#include "jobs/expiry.h"
#include "queue/job_lifetime.h"
#include "queue/job_state.h"
#include "queue/throttle.h"
#include "queue/tube_refs.h"

static void assign_policies(bs_tubes *tubes, const bs_policies *policies)
{
    tubes->policies = policies;
    for (bs_tube *tube = tubes->first; tube; tube = tube->next)
        tube->policy = policies ? bs_policies_find(policies, tube->name, tube->name_length) : NULL;
}

/* Lets the jobs of tubes whose `expires` has changed expire at their new times. */
static void reset_expiries(bs_queue *queue, bs_now now)
{
    bool changed = false;
    for (bs_tube *tube = queue->tubes.first; tube; tube = tube->next) {
        const uint32_t expires = tube->policy ? tube->policy->expires : 0;
        tube->expires_changed = expires != tube->expires;
        tube->expires = expires;
        if (!tube->expires_changed)
            continue;
        changed = changed || expires || tube->expiring.count > 0;
        bs_priority_free(&tube->expiring);
    }
    for (size_t i = 0; changed && i < queue->jobs.capacity; i++) {
        const bs_job *job = queue->jobs.slots[i];
        if (job && job->tube->expires_changed && bs_expiry_of(job))
            bs_job_set_expiry(queue, job, now);
    }
}

void bs_queue_set_policies(bs_queue *queue, bs_policies *policies, bs_now now)
{
    assign_policies(&queue->tubes, policies);
    assign_policies(&queue->remote_tubes, policies);
    queue->no_tube->policy = NULL;
    bs_policies_free(queue->policies);
    queue->policies = policies;
    reset_expiries(queue, now);
    for (bs_tube *tube = queue->tubes.first; tube; tube = tube->next) {
        bs_throttle_reset(queue, tube, now);
        bs_schedule_tube(queue, tube);
    }
    for (bs_tube *tube = queue->tubes.first; tube; tube = tube->next)
        bs_serve_waiters(queue, tube, now);
}

bs_refused bs_policy_refusal(const bs_tube *tube, uint32_t body_size)
{
    enum { CRLF = 2 };
    const bs_policy *policy = tube->policy;
    if (tube->remote)
        return BS_REFUSED_REASONS;
    if (policy->max_jobs && tube->jobs >= policy->max_jobs)
        return BS_REFUSED_TUBE_JOBS;
    if (policy->max_bytes && tube->bytes - CRLF * tube->jobs + body_size - CRLF > policy->max_bytes)
        return BS_REFUSED_TUBE_BYTES;
    return BS_REFUSED_REASONS;
}

void bs_policy_set_times(bs_queue *queue, bs_job *job, uint32_t delay, uint32_t ttr)
{
    const bs_policy *policy = job->tube->policy;
    job->delay = bs_policy_delay(queue, policy, delay);
    if (ttr == 0 && policy->default_ttr) {
        job->ttr = policy->default_ttr;
        queue->counters->policy_actions[BS_POLICY_DEFAULT_TTR]++;
    }
}

uint32_t bs_policy_delay(bs_queue *queue, const bs_policy *policy, uint32_t delay)
{
    if (delay <= policy->max_delay)
        return delay;
    queue->counters->policy_actions[BS_POLICY_MAX_DELAY]++;
    return policy->max_delay;
}

uint32_t bs_policy_backoff(bs_queue *queue, const bs_job *job)
{
    enum { DOUBLINGS = 32 };
    const bs_policy *policy = job->tube->policy;
    const uint32_t doublings = job->reserves ? job->reserves - 1 : 0;
    const uint64_t delay = doublings < DOUBLINGS ? (uint64_t)policy->backoff << doublings : UINT64_MAX;
    queue->counters->policy_actions[BS_POLICY_BACKOFF]++;
    return delay < policy->backoff_max ? (uint32_t)delay : policy->backoff_max;
}

static bool has_reached_reserves(const bs_job *job)
{
    const bs_policy *policy = job->tube->policy;
    return policy && policy->max_reserves && job->reserves >= (uint64_t)policy->max_reserves * (1 + (uint64_t)job->kicks);
}

bool bs_policy_ends(const bs_job *job, bs_now now)
{
    return bs_expiry_reached(job, now.wall) || has_reached_reserves(job);
}

static bs_policy_action expiry_action(const bs_job *job)
{
    const bs_policy *policy = job->tube->policy;
    return policy && policy->expires == bs_expiry_of(job) ? BS_POLICY_EXPIRED : BS_POLICY_JOB_EXPIRED;
}

static void bury(bs_queue *queue, bs_job *job, bs_now now)
{
    bs_job_bury(queue, job, now);
    bs_serve_throttled(queue, job->tube, now);
}

/* Moves the job to a tube of this shard. False: nothing has changed. */
static bool dead_letter(bs_queue *queue, bs_job *job, const char *name, bs_now now)
{
    bs_tube *tube = bs_refs_tube(queue, name, strlen(name));
    if (!tube)
        return false;
    if (tube->remote || tube == job->tube || (!bs_job_has_body(job) && bs_body_load(queue->binlog, job) != 0)) {
        bs_refs_free_unused(queue, tube);
        return false;
    }
    uint64_t id;
    const int error = bs_queue_move(queue, job, (bs_job_target){tube, job->pri, 0, BS_ENDED_DEAD_LETTERED, 0}, &id, now);
    if (error == BS_MOVE_NOT_REMOVED)
        bury(queue, job, now); /* the binlog has failed, and nothing is acknowledged any more */
    return error >= 0;
}

bool bs_policy_end_job(bs_queue *queue, bs_job *job, bs_now now)
{
    const bs_policy *policy = job->tube->policy;
    bs_policy_action action = BS_POLICY_BURIED;
    if (!bs_policy_ends(job, now))
        return false;
    const bool expired = bs_expiry_reached(job, now.wall);
    const bs_policy_action by_age = expiry_action(job);
    if (expired && bs_queue_remove(queue, job, BS_ENDED_EXPIRED, now) == 0)
        action = by_age;
    else if (!expired && policy->then == BS_THEN_MOVE && dead_letter(queue, job, policy->move_to, now))
        action = BS_POLICY_MOVED;
    else if (!expired && policy->then == BS_THEN_DELETE && bs_queue_remove(queue, job, BS_ENDED_DISCARDED, now) == 0)
        action = BS_POLICY_DELETED;
    else
        bury(queue, job, now);
    queue->counters->policy_actions[action]++;
    return true;
}

int bs_policy_expire_job(bs_queue *queue, bs_job *job, bs_now now)
{
    const bs_policy_action action = expiry_action(job);
    const int error = bs_queue_remove(queue, job, BS_ENDED_EXPIRED, now);
    if (!error)
        queue->counters->policy_actions[action]++;
    return error;
}

bs_job *bs_queue_key_holder(bs_queue *queue, const uint8_t key[BS_KEY_BYTES], bs_now now)
{
    bs_job *holder = bs_unique_holder(&queue->key_holders, key);
    if (!holder || holder->state == BS_RESERVED)
        return holder;
    if (holder->truncates != holder->tube->ready.truncates) {
        if (bs_job_attributes_of(holder)->window)
            return holder;
        bs_queue_free_key(queue, holder);
        return NULL;
    }
    const bool expired = holder->state != BS_BURIED && bs_expiry_reached(holder, now.wall);
    return expired && bs_policy_expire_job(queue, holder, now) == 0 ? NULL : holder;
}

void bs_policy_expire(bs_queue *queue, bs_tube *tube, bs_now now)
{
    int error = 0;
    bs_refs_pin(queue, tube);
    bs_job *job;
    while (!error && (job = bs_expiry_take(tube, &queue->jobs, now.wall, &queue->expiry_left))) {
        error = bs_policy_expire_job(queue, job, now);
        if (error)
            bs_expiry_add(tube, &queue->jobs, job);
    }
    bs_schedule_expiry(queue, tube, now);
    /* The rest follows in another round, or when the binlog may have space again. */
    if (tube->expire_at <= now.mono && tube->expiring.count) {
        tube->expire_at = now.mono + (error ? BS_SECOND : BS_MILLISECOND);
        bs_schedule_tube(queue, tube);
    }
    bs_refs_unpin(queue, tube);
}
