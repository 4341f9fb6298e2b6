/* Shared by all clients of the C core: clocks, error values, and the memory of parent and workers.
 *
 * The headers of this folder declare everything that Python calls, one header per client. cffi reads the part between
 * the two cdef marks, in the order of build_extensions.py, so that part has plain declarations only.
 *
 * Conventions of the whole core:
 *   - Functions that can fail return 0, or a negative errno or BS_ERR_ value; bs_core_error has the message.
 *   - Times are int64 nanoseconds. `mono` runs timers, `wall` (since the epoch) is only stored.
 *   - The core never prints. Log lines are events (event_queue.h).
 *   - One thread calls the core. The core owns two threads (sync_thread.h, preallocation.h), which touch only files.
 *
 * A folder of csrc includes headers of itself and the folders before it only: api, base, protocol, jobs, binlog_files,
 * binlog, queue, recovery, shards, links, server, workers, commands, runtime. binlog_files also serves store, history and columns.
 */
#ifndef BS_TYPES_H
#define BS_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cdef begin */

/* Both clocks at one moment, nanoseconds. */
typedef struct {
    int64_t mono;
    int64_t wall;
} bs_now;

/* Reads both clocks, again if the process was interrupted in between. */
bs_now bs_now_read(void);

/* In addition to negative errno values. */
enum {
    BS_ERR_LOCKED = -2001, /* another process has the binlog folder */
    BS_ERR_FOLDER = -2002, /* the binlog folder is missing or is no folder */
    BS_ERR_BINLOG = -2003  /* a write or sync failed: nothing can be acknowledged any more */
};

/* --- counters --------------------------------------------------------------------------------------------- */

/* The commands: first those that `stats` counts as cmd-*, in the order of its reply. */
typedef enum {
    BS_VERB_PUT,
    BS_VERB_PEEK,
    BS_VERB_PEEK_READY,
    BS_VERB_PEEK_DELAYED,
    BS_VERB_PEEK_BURIED,
    BS_VERB_RESERVE,
    BS_VERB_RESERVE_WITH_TIMEOUT,
    BS_VERB_DELETE,
    BS_VERB_RELEASE,
    BS_VERB_USE,
    BS_VERB_WATCH,
    BS_VERB_IGNORE,
    BS_VERB_BURY,
    BS_VERB_KICK,
    BS_VERB_TOUCH,
    BS_VERB_STATS,
    BS_VERB_STATS_JOB,
    BS_VERB_STATS_TUBE,
    BS_VERB_LIST_TUBES,
    BS_VERB_LIST_TUBE_USED,
    BS_VERB_LIST_TUBES_WATCHED,
    BS_VERB_PAUSE_TUBE,
    BS_VERBS_COUNTED,
    BS_VERB_RESERVE_JOB = BS_VERBS_COUNTED,
    BS_VERB_KICK_JOB,
    BS_VERB_FEATURES,
    BS_VERB_LIST_JOBS,
    BS_VERB_TRUNCATE,
    BS_VERB_WAIT,
    BS_VERB_RESERVE_ABORT,
    BS_VERB_RESERVE_BATCH,
    BS_VERB_WITH,
    BS_VERB_MOVE,
    BS_VERB_QUIT,
    BS_VERBS
} bs_verb;

/* Why a put was refused. The metrics name the reasons in this order. */
typedef enum {
    BS_REFUSED_MEMORY_LIMIT,  /* bs_limits.memory */
    BS_REFUSED_BINLOG_FULL,   /* no space on disk */
    BS_REFUSED_OUT_OF_MEMORY, /* the system has no memory */
    BS_REFUSED_JOB_TOO_BIG,
    BS_REFUSED_EXPECTED_CRLF,
    BS_REFUSED_BAD_FORMAT,
    BS_REFUSED_DRAINING,
    BS_REFUSED_WORKER_DOWN,   /* the worker that has the tube is down */
    BS_REFUSED_TUBE_JOBS,     /* bs_policy.max_jobs */
    BS_REFUSED_TUBE_BYTES,    /* bs_policy.max_bytes */
    BS_REFUSED_LOG_OVERDUE,   /* bs_limits.replicate_timeout_ns */
    BS_REFUSED_REASONS
} bs_refused;

/* The actions of tube policies and of job attributes other than to refuse a put. The metrics name them in this order. */
typedef enum {
    BS_POLICY_DEFAULT_TTR, /* a put got its TTR */
    BS_POLICY_MAX_DELAY,   /* a delay was shortened */
    BS_POLICY_BURIED,      /* a job, for its reserves */
    BS_POLICY_DELETED,
    BS_POLICY_MOVED,
    BS_POLICY_BACKOFF,     /* a job that came back was delayed */
    BS_POLICY_MAX_RESERVED, /* a tube became throttled, for its reserved jobs */
    BS_POLICY_RATE,         /* a tube became throttled, for its rate */
    BS_POLICY_EXPIRED,     /* a job was deleted at the age that the policy sets */
    BS_POLICY_JOB_EXPIRED, /* or at that of its own attributes */
    BS_POLICY_DUPLICATE,   /* a put inserted nothing, because another job has its key */
    BS_POLICY_ACTIONS
} bs_policy_action;

enum { BS_BUCKETS = 52 };

/* Counts values of at most 1, 2, 4, ... up to 2^50; the last bucket has all above. It only grows. */
typedef struct {
    double sum;
    uint64_t count[BS_BUCKETS];
} bs_histogram;

/* The counters of one worker. Only that worker writes here; anyone may read. */
typedef struct {
    uint64_t urgent;
    uint64_t ready;
    uint64_t reserved;
    uint64_t delayed;
    uint64_t buried;
    uint64_t cmd[BS_VERBS_COUNTED];
    uint64_t job_timeouts;
    uint64_t total_jobs;
    uint64_t tubes;
    uint64_t connections; /* open now */
    uint64_t producers;
    uint64_t workers;
    uint64_t waiting;
    uint64_t total_connections; /* accepted; those that moved here from another worker are counted there */
    uint64_t closed_connections;
    uint64_t moved_in; /* connections from other workers; open = total + moved_in - closed - moved_out */
    uint64_t moved_out;
    uint64_t peer_bytes_in; /* from other workers, and to them */
    uint64_t peer_bytes_out;
    uint64_t binlog_oldest;
    uint64_t binlog_current;
    uint64_t records_migrated;
    uint64_t records_written;
    uint64_t binlog_max_size; /* bytes of one file */
    uint64_t syncs;
    uint64_t binlog_files;
    uint64_t binlog_bytes;      /* in all files */
    uint64_t binlog_live_bytes; /* of these, in entries of live jobs that a reader needs */
    uint64_t binlog_refusing;   /* 1: the last requested file could not be made */
    uint64_t binlog_full;       /* 1: puts are refused because the disk is full */
    uint64_t pid; /* of the process that writes here; set by the parent */
    bs_histogram sync_time;    /* nanoseconds of each sync */
    bs_histogram sync_entries; /* entries that each sync was the first to cover */
    bs_histogram in_queue;     /* nanoseconds, by the wall clock, from ready to reserved */
    bs_histogram latency[BS_VERBS]; /* nanoseconds, by bs_verb: latency.h */
    uint64_t job_bytes;             /* memory of its jobs: job.h */
    uint64_t kept_bytes; /* job_bytes expected after recovery; set by the parent before it replaces the worker, */
    uint64_t kept_tubes; /* like the expected tubes, and reset by the new worker */
    uint64_t refused_puts[BS_REFUSED_REASONS]; /* by bs_refused */
    uint64_t refused_tubes;         /* commands beyond the limit of tubes */
    uint64_t refused_connections;   /* the parent's: those closed as soon as they were accepted */
    uint64_t timed_out_connections; /* closed because of a client timeout */
    uint64_t binlog_durable_file;     /* with bs_config.history: read by bs_durable_position */
    uint64_t binlog_durable_end;
    uint64_t deferred_dropped;       /* entries for the history that had no space */
    uint64_t body_bytes;             /* with bs_config.body_memory: bodies in memory; part of job_bytes */
    uint64_t bodies_read;            /* bodies that were read back */
    uint64_t bodies_awaited;         /* commands and moves that waited for that */
    uint64_t bodies_unreadable;      /* those for which it failed */
    uint64_t policy_actions[BS_POLICY_ACTIONS]; /* by bs_policy_action */
    char padding[40];              /* to a multiple of BS_ALIGNMENT */
} bs_counters;

/* Returns 1 and the durable position: everything before offset `*end` of file `*file`, and all files with lower
 * numbers, survives a crash of the machine; if nothing is ever synced, it has been written. The position only advances,
 * stays when the worker ends, and is 0, 0 until a worker has read the folder. Returns 0 while it is being changed: call
 * again. Needs no lock; any process may call it. */
int bs_durable_position(const bs_counters *counters, uint64_t *file, uint64_t *end);

/* On a standby, whose replicator writes the folder: publishes the durable position. */
void bs_publish_durable_position(bs_counters *counters, uint64_t file, uint64_t end);

/* --- shared memory ---------------------------------------------------------------------------------------- */

enum { BS_MAX_WORKERS = 255, BS_MAX_TLS_PROCESSES = 64, BS_OWNERS = 1 << 22, BS_PUBLISHED_HEADS = 1024 };

/* Bytes between fields that different processes write: a cache line, and the next one, which processors prefetch. */
enum { BS_ALIGNMENT = 128 };

/* The best ready job of a tube that other workers watch: published_heads.h. */
typedef struct {
    uint64_t sequence;  /* odd while the other fields change */
    uint64_t key;       /* of the tube; 0: none */
    uint64_t id;        /* of the job; 0: none */
    uint32_t pri;
    uint32_t undecided; /* 1: a pending claim may put back a better one */
    char apart[32];     /* to a cache line */
} bs_published_head;

/* What other workers need to send messages to a worker in shared memory: worker_link.h. */
typedef struct {
    uint64_t tickets;      /* drawn for messages to it; atomic */
    uint32_t incarnations; /* how many processes the worker has had */
    uint32_t asleep;       /* the incarnation that waits for its doorbell or other descriptors; 0: it runs; atomic */
    char apart[112];
} bs_inbox;

/* The positions of one worker's replica: replication.h. */
typedef struct {
    uint64_t offered_file; /* by the worker */
    uint64_t offered_end;
    char apart_1[112];
    uint64_t stored_file; /* by the replicator */
    uint64_t stored_end;
    char apart_2[112];
} bs_replication;

/* The memory that parent and workers share. Starts as zeros. */
typedef struct {
    uint64_t last_id; /* of a job; atomic; the next put takes last_id + 1 */
    char padding_1[120];
    uint64_t last_tube; /* number of the newest tube; atomic */
    uint64_t last_connection; /* number of the newest connection that is traced; atomic */
    int64_t lease_end; /* set by the replicator; atomic; 0: there is no lease: replication.h */
    uint32_t draining;  /* set by the parent, never cleared by a worker */
    uint32_t workers;
    uint32_t tls_processes;
    char padding_2[92];
    bs_counters worker[BS_MAX_WORKERS];
    bs_counters parent;      /* its connections: those that have sent nothing yet */
    bs_counters tls[BS_MAX_TLS_PROCESSES]; /* their handshakes are their connections */
    bs_inbox inbox[BS_MAX_WORKERS];
    bs_replication replication[BS_MAX_WORKERS];
    uint32_t owner[BS_OWNERS]; /* which worker has a job: job_owners.h */
    bs_published_head head[BS_MAX_WORKERS][BS_PUBLISHED_HEADS];
} bs_shared;

/* Returns the shard of a tube among `workers`: a jump consistent hash (Lamping and Veach, 2014) of its name, or of the
 * part before the first `colocate` in it, if that is not NULL. */
uint32_t bs_shard_of(const char *name, size_t length, uint32_t workers, const char *colocate);

/* cdef end */

#endif
