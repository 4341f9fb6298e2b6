/* The state of the queue: one shard's jobs, tubes and sessions. queue.h has its invariants. */
#ifndef BS_QUEUE_STATE_H
#define BS_QUEUE_STATE_H

#include "api/types.h"
#include "binlog/binlog.h"
#include "jobs/job.h"
#include "jobs/tube.h"
#include "jobs/unique_keys.h"
#include "queue/session.h"

/* How a wait ends: with a job, without one, or, of a wait for a job, with what has happened to that job. */
typedef enum {
    BS_SERVED_JOB,
    BS_SERVED_TIMED_OUT,
    BS_SERVED_DEADLINE_SOON,
    BS_SERVED_DELETED,
    BS_SERVED_BURIED,
    BS_SERVED_NOT_FOUND,
    BS_SERVED_UNREACHABLE
} bs_served;

/* job_waits.h. All zeros is empty. */
typedef struct bs_job_wait bs_job_wait;
typedef struct bs_job_move bs_job_move;

typedef struct {
    bs_job_wait **buckets;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
    bs_job_wait *first_ended;
    bs_job_wait *last_ended;
} bs_job_waits;

/* adopted[] of a worker that is down or has sent no census. */
#define BS_ADOPTED_UNKNOWN UINT64_MAX

typedef struct {
    bs_job_table jobs;
    bs_key_table key_holders;          /* of these jobs */
    bs_ended_keys ended_keys;          /* of jobs that have ended */
    int64_t keys_at;                   /* when some of these are over or are to be looked at again, mono */
    bs_tubes tubes;                    /* of this shard */
    bs_tubes remote_tubes;             /* of other shards, used or watched here */
    bs_sessions sessions;
    bs_session *former;                /* holds the jobs that clients had reserved before a planned failover; NULL: none */
    bs_heap tube_times;
    bs_heap session_times;
    bs_tube *default_tube;
    bs_tube *no_tube;                  /* used by proxies; its name is invalid for clients */
    bs_tube *first_changed;            /* remote tubes whose counts must be sent, in the order of change */
    bs_tube *last_changed;
    bs_tube *first_head_changed;       /* tubes of this shard whose heads must be published */
    uint32_t used_head_slots;          /* ever used */
    uint32_t free_head_count;
    uint16_t free_head_slots[BS_PUBLISHED_HEADS];
    uint32_t shard;
    uint32_t workers;
    const char *colocate;
    bs_policies *policies;             /* of the tubes; owned; NULL: none */
    bs_binlog *binlog;                 /* NULL: nothing is written */
    bs_bodies *bodies;                 /* of the binlog; NULL: bodies are not separate */
    bs_counters *counters;
    bs_shared *shared;
    uint64_t adopted[BS_MAX_WORKERS]; /* connections that other workers have adopted from the parent, or
                                       * BS_ADOPTED_UNKNOWN */
    bool adopted_new;                  /* this worker has adopted connections since its last census */
    bool unresponsive[BS_MAX_WORKERS]; /* has a pending claim for too long, and has sent nothing since */
    uint32_t expiry_left;              /* entries of expiring jobs that this tick may still look at */
    int64_t buried_sequence;
    int64_t last_buried_at;            /* wall; the times of burying rise even if the clock is set back */
    bs_job_waits job_waits;
    bs_job_move *first_move;           /* to tubes of this shard, in the order of their copies (job_lifetime.h) */
    bs_job_move *last_move;
    uint64_t mover;                    /* the session that holds their jobs; 0: none yet */
    /* Called when a wait has ended. With DELETED, BURIED and NOT_FOUND the session still waits (job_waits.h). */
    void (*served)(void *context, bs_session *session, bs_served how, bs_job *job, bs_now now);
    void *context;
} bs_queue;

#endif
