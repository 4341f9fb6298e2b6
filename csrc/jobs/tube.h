/* A tube, and all tubes by name and in creation order. Knows jobs, not clients: waiters are kept for queue.h. */
#ifndef BS_TUBE_H
#define BS_TUBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/heap.h"
#include "jobs/job.h"
#include "jobs/ready_jobs.h"
#include "protocol/tube_name.h"

typedef struct bs_watch bs_watch;

/* How many sessions of another worker use and watch a tube of this one. */
typedef struct {
    uint32_t users;
    uint32_t watchers;
    uint32_t holds;
    uint8_t peer;
} bs_peer_refs;

enum { BS_URGENT_BELOW = 1024 };

struct bs_tube {
    uint64_t number; /* in creation order over all workers */
    bs_tube *chain;  /* same bucket */
    bs_tube *previous; /* creation order */
    bs_tube *next;
    bs_ready ready;
    bs_heap delayed; /* by deadline */
    bs_heap buried;  /* by the order of burying */
    bs_watch *first_waiter;
    bs_watch *last_waiter;
    uint64_t jobs; /* that point here, those still arriving too */
    uint64_t urgent;
    uint64_t reserved;
    uint64_t total_jobs;
    uint64_t deletes;
    uint64_t reserves;
    uint64_t pauses;
    int64_t pause_ns; /* 0: not paused */
    int64_t unpause_at;
    uint32_t place; /* in the heap of tubes by time */
    uint32_t slot;  /* in its set, the same as long as it lives */
    uint32_t users;
    uint32_t watchers;
    uint32_t waiters;
    uint32_t pending_claims; /* its jobs that are claimed, and nobody knows yet whether they are taken (pending_claims.h) */
    uint32_t holds;  /* proxies that watch it, and connections that are moving: it may not go, but nobody is counted */
    uint32_t shard;
    bool remote;  /* another worker has its jobs, and this is what is known of it here */
    bool counts_changed;    /* in the queue's list of counts to tell its worker */
    bool counts_sent;       /* and that worker knows of it */
    bool recreated;       /* and nobody needed it for a moment before that was told */
    uint8_t peer_ref_count;
    bs_peer_refs *peer_refs; /* what other workers have said; part of `users`, `watchers` and `holds` */
    bs_tube *next_changed;
    uint8_t name_length;
    char name[]; /* ends with a NUL */
};

extern const bs_heap_kind bs_tube_kind;

/* All zeros is an empty set. */
typedef struct {
    bs_tube **buckets;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
    bs_tube *first;
    bs_tube *last;
    bs_tube **slots; /* for who goes over them in pieces while they come and go: NULL where one has gone */
    uint32_t *free_slots;
    uint32_t slot_count; /* ever used */
    uint32_t slot_capacity;
    uint32_t free_count;
} bs_tubes;

/* Nanoseconds for which nobody may reserve from it. */
static inline int64_t bs_tube_pause_left(const bs_tube *tube, int64_t mono)
{
    return tube->pause_ns && tube->unpause_at > mono ? tube->unpause_at - mono : 0;
}

bs_tube *bs_tubes_find(const bs_tubes *tubes, const char *name, size_t length);

/* Finds it or makes it, with the next number then; NULL when memory ran out. */
bs_tube *bs_tubes_get(bs_tubes *tubes, const char *name, size_t length, uint64_t *last_number);

/* Removes and frees a tube that nothing points to. */
void bs_tubes_remove(bs_tubes *tubes, bs_tube *tube);
void bs_tubes_free(bs_tubes *tubes);

#endif
