#include "queue/tube_policies.h"

static void resolve(bs_tubes *tubes, const bs_policies *policies)
{
    tubes->policies = policies;
    for (bs_tube *tube = tubes->first; tube; tube = tube->next)
        tube->policy = policies ? bs_policies_find(policies, tube->name, tube->name_length) : NULL;
}

void bs_queue_set_policies(bs_queue *queue, bs_policies *policies)
{
    resolve(&queue->tubes, policies);
    resolve(&queue->remote_tubes, policies);
    queue->no_tube->policy = NULL;
    bs_policies_free(queue->policies);
    queue->policies = policies;
}

bs_refused bs_policy_refusal(const bs_tube *tube, uint32_t body_size)
{
    enum { CRLF = 2 };
    const bs_policy *policy = tube->policy;
    if (!policy || tube->remote)
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
