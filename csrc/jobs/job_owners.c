#include "jobs/job_owners.h"

_Static_assert(offsetof(bs_shared, last_tube) % BS_ALIGNMENT == 0 && offsetof(bs_shared, worker) % BS_ALIGNMENT == 0 &&
                   offsetof(bs_shared, owner) % BS_ALIGNMENT == 0 && sizeof(bs_counters) % BS_ALIGNMENT == 0,
               "fields that different processes write share no cache line");

/* The upper part of the id and the worker plus one, so that zero is no entry. 24 bits distinguish ids less than 2^46
 * apart. */
static uint32_t entry(uint64_t id, uint32_t worker)
{
    return (uint32_t)(id / BS_OWNERS) << 8 | (worker + 1);
}

void bs_owner_set(bs_shared *shared, uint64_t id, uint32_t worker)
{
    __atomic_store_n(&shared->owner[id % BS_OWNERS], entry(id, worker), __ATOMIC_RELAXED);
}

int bs_owner_of(const bs_shared *shared, uint64_t id)
{
    uint32_t stored = __atomic_load_n(&shared->owner[id % BS_OWNERS], __ATOMIC_RELAXED);
    uint32_t worker = (stored & UINT8_MAX) - 1;
    return (stored & UINT8_MAX) != 0 && stored == entry(id, worker) ? (int)worker : BS_OWNER_UNKNOWN;
}
