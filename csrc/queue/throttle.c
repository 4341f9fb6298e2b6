#include "queue/throttle.h"

#include "queue/published_heads.h"

static void set_throttle(bs_queue *queue, bs_tube *tube, uint8_t throttle, bool on)
{
    const uint8_t throttles = (uint8_t)(on ? tube->throttles | throttle : tube->throttles & ~throttle);
    if (throttles == tube->throttles)
        return;
    tube->throttles = throttles;
    bs_head_changed(queue, tube);
    if (on)
        queue->counters->policy_actions[throttle == BS_THROTTLED_RATE ? BS_POLICY_RATE : BS_POLICY_MAX_RESERVED]++;
}

static bool has_reached_reserved(const bs_tube *tube)
{
    return tube->policy && tube->policy->max_reserved && tube->reserved >= tube->policy->max_reserved;
}

int64_t bs_throttle_token_at(const bs_tube *tube)
{
    const bs_policy *policy = tube->policy;
    return tube->paced_until - (int64_t)(policy->rate_burst - 1) * policy->rate_interval_ns;
}

/* Returns `paced_until`, at most its value for an empty bucket. */
static int64_t limited(const bs_tube *tube, int64_t paced_until, bs_now now)
{
    const int64_t empty = now.mono + tube->policy->rate_interval_ns * tube->policy->rate_burst;
    return paced_until < empty ? paced_until : empty;
}

void bs_throttle_reserved(bs_queue *queue, bs_tube *tube, bs_now now)
{
    set_throttle(queue, tube, BS_THROTTLED_RESERVED, has_reached_reserved(tube));
    if (!tube->policy->rate_interval_ns)
        return;
    const int64_t since = tube->paced_until > now.mono ? tube->paced_until : now.mono;
    tube->paced_until = limited(tube, since + tube->policy->rate_interval_ns, now);
    set_throttle(queue, tube, BS_THROTTLED_RATE, bs_throttle_token_at(tube) > now.mono);
}

void bs_throttle_unreserved(bs_queue *queue, bs_tube *tube)
{
    set_throttle(queue, tube, BS_THROTTLED_RESERVED, has_reached_reserved(tube));
}

void bs_throttle_return_token(bs_queue *queue, bs_tube *tube, bs_now now)
{
    if (!tube->policy->rate_interval_ns)
        return;
    tube->paced_until -= tube->policy->rate_interval_ns;
    set_throttle(queue, tube, BS_THROTTLED_RATE, bs_throttle_token_at(tube) > now.mono);
}

void bs_throttle_reset(bs_queue *queue, bs_tube *tube, bs_now now)
{
    const bool paced = tube->policy && tube->policy->rate_interval_ns;
    /* An interval of the policy before may have been longer. */
    tube->paced_until = paced ? limited(tube, tube->paced_until, now) : 0;
    set_throttle(queue, tube, BS_THROTTLED_RESERVED, has_reached_reserved(tube));
    set_throttle(queue, tube, BS_THROTTLED_RATE, paced && bs_throttle_token_at(tube) > now.mono);
}
