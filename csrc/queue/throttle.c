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

void bs_throttle_reserved(bs_queue *queue, bs_tube *tube, bs_now now)
{
    set_throttle(queue, tube, BS_THROTTLED_RESERVED, has_reached_reserved(tube));
    if (!tube->policy->rate_interval_ns || bs_throttle_token_at(tube) > now.mono)
        return; /* reserve-job takes a token only if there is one */
    const int64_t since = tube->paced_until > now.mono ? tube->paced_until : now.mono;
    tube->paced_until = since + tube->policy->rate_interval_ns;
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
    const int64_t empty = paced ? now.mono + tube->policy->rate_interval_ns * tube->policy->rate_burst : 0;
    if (tube->paced_until > empty)
        tube->paced_until = empty; /* an interval of the policy before may have been longer */
    set_throttle(queue, tube, BS_THROTTLED_RESERVED, has_reached_reserved(tube));
    set_throttle(queue, tube, BS_THROTTLED_RATE, paced && bs_throttle_token_at(tube) > now.mono);
}
