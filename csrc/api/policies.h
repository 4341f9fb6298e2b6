/* Tube policies: limits and defaults of the tubes whose names match a shell pattern (docs/policies.md). */
#ifndef BS_API_POLICIES_H
#define BS_API_POLICIES_H

#include "api/server.h"

/* cdef begin */

/* The treatment of a job that comes back after bs_policy.max_reserves reserves. */
typedef enum { BS_THEN_BURY, BS_THEN_DELETE, BS_THEN_MOVE } bs_policy_then;

/* One policy. The pattern has *, ?, [abc], [a-z] and [!abc]; it is valid, as tube_policies.py checks. */
typedef struct {
    const char *pattern;
    uint64_t max_jobs;     /* 0: no limit */
    uint64_t max_bytes;    /* of all bodies, without CR LF; 0: no limit */
    uint32_t default_ttr;  /* seconds; replaces a TTR of 0; 0: none */
    uint32_t max_delay;    /* seconds; UINT32_MAX: no limit */
    uint32_t max_reserves; /* of a job since it was put or last kicked; 0: no limit */
    bs_policy_then then;   /* with max_reserves: the treatment of a job that comes back */
    const char *move_to;   /* BS_THEN_MOVE: a valid name of a tube; else NULL */
    uint32_t backoff;      /* seconds; delay of a job that times out or is released without one; 0: none */
    uint32_t backoff_max;  /* seconds; it doubles with each reserve up to this */
    uint64_t max_reserved; /* jobs reserved at once; 0: no limit */
    int64_t rate_interval_ns; /* between two reserves in the long run; 0: no limit */
    uint32_t rate_burst;   /* reserves at once */
    bool unique_body;      /* the body of a put is its key, unless `with` gives it another one */
    uint32_t expires;      /* seconds after its put; deletes a job that is ready or delayed; 0: never */
} bs_policy;

/* Replaces the policies, which are copied, and resolves them for all tubes: the first whose pattern matches applies. 0,
 * or -ENOMEM: the old ones stay. */
int bs_core_set_policies(bs_core *core, const bs_policy *policies, uint32_t count, bs_now now);

/* Writes the pattern of a tube's policy to `pattern`, which has `capacity` bytes; an empty string: none. -ENOENT: this
 * shard has no such tube. */
int bs_core_policy_of(const bs_core *core, const char *tube, size_t length, char *pattern, size_t capacity);

/* cdef end */

#endif
