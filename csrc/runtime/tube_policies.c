/* bs_core_set_policies and bs_core_policy_of. */

#include <errno.h>
#include <stdio.h>

#include "api/policies.h"
#include "queue/tube_policies.h"
#include "runtime/connection.h"

int bs_core_set_policies(bs_core *core, const bs_policy *policies, uint32_t count, bs_now now)
{
    bs_policies *compiled = count ? bs_policies_new(policies, count) : NULL;
    if (count && !compiled)
        return -ENOMEM;
    bs_queue_set_policies(&core->server.queue, compiled, now);
    bs_core_wake(core); /* waiting clients may have jobs now */
    return 0;
}

int bs_core_policy_of(const bs_core *core, const char *name, size_t length, char *pattern, size_t capacity)
{
    const bs_tube *tube = bs_tubes_find(&core->server.queue.tubes, name, length);
    if (!tube)
        return -ENOENT;
    (void)snprintf(pattern, capacity, "%s", tube->policy ? tube->policy->pattern : "");
    return 0;
}
