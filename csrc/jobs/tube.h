/* A tube, and all tubes by name and in creation order. Waiters are kept here for queue.h. */
#ifndef BS_TUBE_H
#define BS_TUBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/heap.h"
#include "jobs/job.h"
#include "jobs/policies.h"
#include "jobs/priority_heap.h"
#include "jobs/ready_jobs.h"
#include "protocol/tube_name.h"

typedef struct bs_watch bs_watch;

/* How many sessions of another worker use and watch a tube of this shard. */
typedef struct {
    uint32_t users;
    uint32_t watchers;
    uint32_t pins;
    uint8_t peer;
    bool published; /* that worker knows where the tube's head is published (published_heads.h) */
} bs_peer_refs;

enum { BS_URGENT_BELOW = 1024 };

/* Reasons for which a policy keeps the ready jobs of a tube back (throttle.h). */
enum { BS_THROTTLED_RESERVED = 1, BS_THROTTLED_RATE = 2 };

struct bs_tube {
    uint64_t number;         /* creation order over all workers */
    bs_tube *chain;          /* next in the bucket */
    bs_tube *previous;       /* creation order */
    bs_tube *next;
    bs_ready ready;
    bs_heap delayed;         /* by deadline */
    bs_heap buried;          /* by the order of burying */
    bs_priority_heap expiring; /* jobs that expire: expiry.h */
    struct bs_tube *truncated; /* has the jobs that a truncate deletes, or NULL: queue.h */
    bs_watch *first_waiter;
    bs_watch *last_waiter;
    const bs_policy *policy; /* NULL: none */
    uint64_t jobs;           /* including those whose bodies are arriving */
    uint64_t bytes;          /* of their bodies, with CR LF */
    uint64_t urgent;
    uint64_t reserved;
    uint64_t total_jobs;
    uint64_t deletes;
    uint64_t reserves;
    uint64_t pauses;
    int64_t pause_ns;        /* 0: not paused */
    int64_t unpause_at;
    int64_t expire_at;       /* mono; the time of the first of `expiring` */
    int64_t paced_until;     /* mono; with bs_policy.rate_interval_ns: when all reserves so far are paid for */
    uint32_t place;          /* in the heap of tubes by time */
    uint32_t slot;           /* in bs_tubes, fixed */
    uint32_t users;
    uint32_t watchers;
    uint32_t waiters;
    uint32_t pending_claims; /* claimed jobs of the tube (claims.h) */
    uint32_t pins;           /* proxies that watch it, and migrating connections: they keep the tube, uncounted */
    uint32_t shard;
    uint32_t expires;        /* bs_policy.expires when its policy was set */
    bool expires_changed;    /* since the policies before */
    uint8_t throttles;       /* BS_THROTTLED_ bits: its policy keeps ready jobs back */
    bool lingers;            /* it is unused, and stays until `paced_until` at least (throttle.h, H3) */
    bool remote;             /* a tube of another shard */
    bool head_changed;       /* in the queue's list of heads to publish */
    uint32_t head_slot;      /* where its head is published, counted from 1; 0: nowhere, or unknown here */
    uint64_t head_key;       /* `key` of the slot while it belongs to this tube */
    bool counts_changed;     /* in the queue's list of counts to send */
    bool counts_sent;        /* its worker has received counts */
    bool recreated;          /* its last reference has gone and a new one has come since the last counts */
    uint8_t peer_ref_count;
    bs_peer_refs *peer_refs; /* counts from other workers; part of `users`, `watchers` and `pins` */
    bs_tube *next_changed;   /* of a remote tube: in the list of counts; of a local one: in that of heads */
    uint8_t name_length;
    char name[];             /* NUL-terminated */
};

extern const bs_heap_kind bs_tube_kind;

/* All zeros is an empty set. */
typedef struct {
    bs_tube **buckets;
    size_t capacity;     /* a power of two, or 0 */
    size_t count;
    bs_tube *first;
    bs_tube *last;
    bs_tube **slots;     /* for iterations in pieces while tubes come and go: NULL for a freed slot */
    uint32_t *free_slots;
    uint32_t slot_count; /* ever used */
    size_t slot_capacity;
    uint32_t free_count;
    const bs_policies *policies; /* of new tubes; NULL: none */
} bs_tubes;

/* Returns whether ready jobs may be handed out. */
static inline bool bs_tube_is_open(const bs_tube *tube)
{
    return !tube->pause_ns && !tube->throttles;
}

/* Returns the nanoseconds until the pause ends. */
static inline int64_t bs_tube_pause_left(const bs_tube *tube, int64_t mono)
{
    return tube->pause_ns && tube->unpause_at > mono ? tube->unpause_at - mono : 0;
}

bs_tube *bs_tubes_find(const bs_tubes *tubes, const char *name, size_t length);

/* Finds or creates a tube; a new one gets the next number. NULL without memory. */
bs_tube *bs_tubes_get(bs_tubes *tubes, const char *name, size_t length, uint64_t *last_number);

/* Returns a job in one of these states (bits 1 << BS_READY, BS_DELAYED, BS_BURIED), or NULL. */
bs_job *bs_tube_any_job(const bs_tube *tube, unsigned states);

/* Frees a tube that is in no set. */
void bs_tube_free(bs_tube *tube);

/* Removes and frees an unused tube. */
void bs_tubes_remove(bs_tubes *tubes, bs_tube *tube);
void bs_tubes_free(bs_tubes *tubes);

#endif
