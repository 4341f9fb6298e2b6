/* The server: one core per worker, its sessions, its events, and its part in the cluster of workers. */
#ifndef BS_SERVER_H
#define BS_SERVER_H

#include "api/types.h"

/* cdef begin */

typedef struct bs_core bs_core;

/* Strings belong to the caller and are copied. */
typedef struct {
    const char *binlog_dir;   /* NULL: nothing is written */
    int64_t file_size;        /* bytes of one file */
    int64_t sync_interval_ns; /* 0: sync before the reply; > 0: at most this often; < 0: never */
    uint32_t max_job_size;    /* bytes, without the CR LF */
    uint32_t worker;          /* index into bs_shared.worker, and the number of its shard */
    uint32_t workers;         /* number of shards; 0 means 1 */
    const char *colocate;     /* NULL, or the end of the part of a tube's name that decides its shard */
    uint64_t body_memory;     /* bytes of job bodies in memory; others are only in the binlog. 0: all are in memory */
    int history;              /* 1: write deferred entries, keep done files, publish the durable position (binlog.h) */
} bs_config;

/* 0: no limit. Sums are over all workers. */
typedef struct {
    uint64_t memory;           /* bytes of jobs (bs_counters.job_bytes) */
    uint64_t tubes;
    uint64_t output;           /* bytes of replies that a client has not read; its commands wait meanwhile. Not 0 */
    int64_t idle_timeout_ns;   /* client_timeouts.c */
    int64_t send_timeout_ns;
    int64_t output_timeout_ns;
    int64_t replicate_timeout_ns; /* overdue_log.h */
} bs_limits;

/* Creates a core without connections or binlog; `shared` must outlive it. NULL without memory or descriptors. */
bs_core *bs_core_new(const bs_config *config, bs_shared *shared, bs_now now);

/* Opens config.binlog_dir: takes its lock, reads its files, starts a new file. Without a folder it does nothing. */
int bs_core_recover(bs_core *core, bs_now now);

/* From now on, executes no command of a client, only those that other workers have sent. Replies still leave. */
void bs_core_end_commands(bs_core *core);

/* Returns how many bytes of replies the systems of the clients have not received, plus the number of replies that other
 * workers still have to send. If it is 0 after bs_core_end_commands, bs_core_stop cuts no reply. */
uint64_t bs_core_unsent(const bs_core *core);

/* Stops in order: writes and syncs everything, sends the replies that waited for it, cuts the last file, releases the
 * lock. Discards unread input, because its close would be a reset. 0 or BS_ERR_BINLOG. */
int bs_core_stop(bs_core *core);

/* Frees everything and closes every descriptor of the core. Writes nothing. */
void bs_core_free(bs_core *core);

/* Returns the message of the last error; the core owns it. */
const char *bs_core_error(const bs_core *core);

/* Replaces these values of bs_config. An interval below 0 stays, and no interval becomes negative; that of a replicated
 * core stays 0. */
void bs_core_change(bs_core *core, uint32_t max_job_size, int64_t sync_interval_ns);

/* Replaces the limits. The default is no limit but an output of 1 MiB. */
void bs_core_limit(bs_core *core, const bs_limits *limits, bs_now now);

/* The level of tracing (trace.h). */
enum { BS_TRACE_NOTHING, BS_TRACE_CONNECTIONS, BS_TRACE_COMMANDS };

/* Sets the trace level, and after how long a command is logged as slow; 0: never. */
void bs_core_trace(bs_core *core, int level, int64_t slow_ns);

/* Returns freed memory of this process to the system; takes about 0.1 s per GB. */
void bs_trim_memory(void);

/* --- the loop --------------------------------------------------------------------------------------------- */

/* Why bs_core_run has returned, as bits. */
enum {
    BS_RUN_EVENTS = 1,   /* bs_core_next_event has events */
    BS_RUN_MORE = 2,     /* work is left: call again soon */
    BS_RUN_EXTERNAL = 4, /* the descriptor of bs_core_watch is readable */
    BS_RUN_FATAL = 8,    /* the core has stopped: bs_core_error has the reason */
    BS_RUN_UPCALLS = 16  /* bs_core_next_upcall has upcalls */
};

/* The descriptor that is readable when bs_core_run has work. */
int bs_core_fd(const bs_core *core);

/* Runs rounds; returns BS_RUN_ bits when Python is needed, at the latest after budget_ns. With `linger` it waits for
 * more work until then, because another call costs more than waiting here. */
int bs_core_run(bs_core *core, int64_t budget_ns, int linger);

/* Adopts a connected socket, which the core closes, also on failure. */
int bs_core_adopt(bs_core *core, int fd);

/* Adopts every socket that arrives by SCM_RIGHTS on this Unix socket, which the caller closes. A message has as many
 * bytes as descriptors, 64 at most, so that the core can count descriptors that it could not receive. */
int bs_core_adopt_from(bs_core *core, int channel_fd);

/* Makes bs_core_run return with BS_RUN_EXTERNAL while this descriptor is readable. */
int bs_core_watch(bs_core *core, int fd);

/* --- events: log lines and requests for Python ------------------------------------------------------------ */

enum {
    BS_EVENT_STATS = 1, /* `session` waits for the reply to `stats`: bs_core_answer */
    BS_EVENT_LOG = 2,   /* log `text` at `level`, a level of Python's logging (20, 30, 40) */
    /* Of a connection that is traced: */
    BS_EVENT_ACCEPTED,
    BS_EVENT_MOVED,     /* it has come from worker `shard` */
    BS_EVENT_CLOSED,    /* `duration` after it was accepted and after `count` commands; `cause` is BS_CLOSED_ */
    BS_EVENT_COMMAND,   /* the line is `text`; `word`, `job` and `tube` are its parts, if it is a command */
    BS_EVENT_JOB,       /* the body of `job` has arrived, `count` bytes */
    BS_EVENT_REPLY,     /* the first line is `text` */
    BS_EVENT_SLOW,      /* the reply to `word`, about `job` or `tube`, took `duration`, and `count` others left
                         * with it; `cause` is BS_SLOW_ */
    BS_EVENT_SLOW_MORE  /* `count` other slow commands were not logged */
};

/* Why a connection has ended. */
enum { BS_CLOSED_QUIT = 1, BS_CLOSED_BY_CLIENT, BS_CLOSED_BROKEN };

/* The cause of a slow reply. */
enum { BS_SLOW_UNKNOWN, BS_SLOW_SYNC, BS_SLOW_WORKER };

enum { BS_ADDRESS_MAX = 64, BS_WORD_MAX = 24 };

typedef struct {
    int kind;
    int level;
    uint64_t session;
    uint64_t connection; /* its number, unique over all workers */
    uint64_t job;        /* 0: none */
    uint64_t count;
    int64_t duration;    /* nanoseconds */
    int cause;
    uint32_t shard;
    bool cut;            /* the line was too long and is left out */
    uint32_t length;     /* of `text`; a client's line may contain any bytes */
    char address[BS_ADDRESS_MAX]; /* of the client */
    char word[BS_WORD_MAX];
    char tube[208];
    char text[488];
} bs_event;

/* Takes one event: 1, or 0 if there is none. */
int bs_core_next_event(bs_core *core, bs_event *event);

/* Sends a session the reply it waits for; ignores a session that has ended. */
int bs_core_answer(bs_core *core, uint64_t session, const char *bytes, size_t length, bs_now now);

/* Counts the producers and workers among the connections of all workers, as of the last BS_EVENT_STATS. */
void bs_core_roles(const bs_core *core, uint64_t *producers, uint64_t *workers);

/* --- connections and tubes -------------------------------------------------------------------------------- */

/* Writes a client's address: HOST:PORT, [HOST]:PORT for IPv6, pid:PID for a Unix socket, or "gone". `text` has
 * BS_ADDRESS_MAX bytes. */
void bs_peer_address(int fd, char *text);

/* A connection, or a proxy: then `number` and `home` are those of the session it stands for. */
typedef struct {
    uint64_t number;
    uint32_t home;
    int fd; /* -1: a proxy */
    bool is_proxy;
    bool waits;    /* in a reserve, until `until` (monotonic; INT64_MAX: forever) */
    bool producer;
    bool worker;
    int64_t until;
    uint32_t watching;
    uint32_t holds; /* jobs reserved here */
    size_t unread;  /* bytes received and not executed */
    size_t unsent;  /* bytes of replies */
    const char *use;
    const char *lists; /* lines: the first 64 tubes it watches, an empty line, the ids of the first 64 jobs it holds */
    size_t length;
} bs_session_info;

/* Describes the session in a slot, counted from 0: 1; 0 for an empty slot, -ENOENT after the last one, -ENOMEM. The
 * pointers are valid until the next call of it or for an upcall. */
int bs_core_session_at(bs_core *core, uint32_t slot, bs_session_info *info);

/* Returns the tubes of this shard, a line each: number, space, name. The bytes are valid until the next call of it or
 * for an upcall. NULL without memory. */
const char *bs_core_tubes(bs_core *core, size_t *length);

/* Bytes of one tube in bs_core_tube_stats. */
enum { BS_TUBE_STATS_MAX = 512 };

/* Writes the statistics of tubes of this shard from slot `*first` on, as a msgpack array each: the name as bytes, and
 * the numbers that control/tube_stats.py lists, times in milliseconds. `capacity` is at least BS_TUBE_STATS_MAX.
 * Returns the bytes written; sets `*first` to the next slot, or to -1 after the last one. A series of calls reports a
 * tube that exists all the time once. */
size_t bs_core_tube_stats(const bs_core *core, int64_t *first, char *buffer, size_t capacity, bs_now now);

/* --- admin operations ------------------------------------------------------------------------------------- */

/* The outcome of one step of a compaction or truncation. */
enum {
    BS_STEP_DONE,
    BS_STEP_MORE, /* call again after a round */
    BS_STEP_WAIT  /* call again later: a compaction needs a sync or space on disk; a truncation is called with `most` 0
                   * until its entries are synced */
};

/* `last` is 0 at first, and then that of the call before. */
typedef struct {
    int outcome;
    uint32_t last; /* the current file at first; jobs of later files stay, so a compaction ends under any load */
    int64_t bytes; /* of all files */
    int64_t alive; /* of these, bytes that are needed */
} bs_compact_state;

/* Moves jobs out of the oldest files, about a million bytes, until all files have at most `per_cent` bytes for every
 * hundred needed, or all files up to `last` are gone. */
void bs_core_compact(bs_core *core, int64_t per_cent, bs_compact_state *state, bs_now now);

/* All zeros at first, and then the values of the call before. */
typedef struct {
    int outcome;
    uint64_t removed;
    uint64_t gen; /* the generation that has to be on disk */
} bs_truncate_state;

/* Removes at most `most` jobs of a tube of this shard that are in one of these states (bits 1 << BS_READY, BS_DELAYED,
 * BS_BURIED of job.h). The binlog records them as truncated; no counter of deletes changes. It is done when no job is
 * left, and where replies wait for syncs, when the last entry is synced. 0, or -ENOSPC: there is no space for more. */
int bs_core_truncate(bs_core *core, const char *tube, size_t length, unsigned states, uint32_t most,
                     bs_truncate_state *state, bs_now now);

/* --- sessions without a socket: bytes in, bytes out ------------------------------------------------------- */

/* Opens a session; 0 without memory. */
uint64_t bs_core_open(bs_core *core, bs_now now);

/* Feeds bytes. -ENOENT: the session has ended. */
int bs_core_feed(bs_core *core, uint64_t session, const char *bytes, size_t length, bs_now now);

/* Ends the input, as a client does that closes its sending side. */
int bs_core_finish(bs_core *core, uint64_t session, bs_now now);

/* Moves up to `capacity` bytes of output that no longer waits for a sync into `buffer`; returns how many, or -ENOENT.
 * Call bs_core_commit first, because replies must not precede the write. A session with too much output resumes at the
 * next tick or commit. */
int64_t bs_core_output(bs_core *core, uint64_t session, char *buffer, size_t capacity);

/* Ends a session as a closed connection does. Unknown sessions are ignored. */
void bs_core_close(bs_core *core, uint64_t session, bs_now now);

/* Runs the timers that are due; returns the monotonic time of the next one, INT64_MAX without any. */
int64_t bs_core_tick(bs_core *core, bs_now now);

/* Ends a round: writes the binlog and, where replies wait for a sync, syncs in this thread and releases them. */
int bs_core_commit(bs_core *core, bs_now now);

/* --- upcalls: requests that Python handles with other workers --------------------------------------------- */

enum {
    BS_UPCALL_FRAME = 1,      /* worker `shard` has sent the PYTHON frame `bytes`, and maybe `fd`, now the caller's.
                               * Later frames of that worker wait for bs_core_resume_peers */
    BS_UPCALL_PEER_CLOSED,    /* the worker `shard` has closed its end, or died: call bs_core_lose_peer */
    BS_UPCALL_PROTOCOL_ERROR, /* the worker `shard` has sent bytes that are no frame */
    BS_UPCALL_OUTPUT,         /* the proxy at `shard` has sent `bytes` for `session`, after BS_UPCALL_FIND_JOB */
    BS_UPCALL_FIND_JOB,       /* the command in `bytes` needs the worker that has its job; `session` waits */
    BS_UPCALL_LIST_TUBES,     /* `session` waits for the reply to list-tubes */
    BS_UPCALL_SESSION_CLOSED, /* `session`, at home, has ended */
    BS_UPCALL_MIGRATE         /* `session` is to move to `shard`; it executes nothing until it has moved or
                               * bs_core_cancel_migration. It must hold no job at the shards in `bytes`, a byte each */
};

typedef struct {
    int kind;
    uint32_t shard;
    int fd;            /* -1: none */
    uint64_t session;
    const char *bytes; /* valid until the next call for an upcall */
    size_t length;
} bs_upcall;

/* Takes one upcall: 1, or 0 if there is none. */
int bs_core_next_upcall(bs_core *core, bs_upcall *upcall);

/* --- other workers ---------------------------------------------------------------------------------------- */

/* Continues with the frames that waited until all BS_UPCALL_FRAME were handled. 1: there are new upcalls. */
int bs_core_resume_peers(bs_core *core, bs_now now);

/* Adopts a SOCK_SEQPACKET socket to another worker, after bs_core_lose_peer for the previous one; closes it on failure.
 * 0 or a negative errno. A worker without a socket is down: the reply to commands for it is INTERNAL_ERROR. */
int bs_core_add_peer(bs_core *core, uint32_t shard, int fd, bs_now now);

/* Closes the socket to another worker, drops its outbox and ends its proxies. Commands that the worker has not answered
 * get INTERNAL_ERROR. */
void bs_core_lose_peer(bs_core *core, uint32_t shard, bs_now now);

/* The kinds of frames between workers, with the meaning of bs_frame_header.number: a session is one at its home worker,
 * and no number but that of a tube is 0. */
enum {
    BS_FRAME_PYTHON = 1, /* content for BS_UPCALL_FRAME */
    BS_FRAME_FEED,       /* session; content: command lines for its proxy */
    BS_FRAME_CLOSE,      /* session; it has ended */
    BS_FRAME_OUTPUT,     /* session; content: output of its proxy */
    BS_FRAME_ENDED,      /* session; its proxy has failed */
    BS_FRAME_COUNT,      /* number of a tube; content: bs_peer_refs and the tube's name */
    BS_FRAME_CENSUS,     /* content: bs_census; these four: barrier.h */
    BS_FRAME_SYNC,       /* token */
    BS_FRAME_SYNCED,     /* token */
    BS_FRAME_ARRIVED,    /* number of a migration */
    BS_FRAME_PUBLISHED,  /* key of a tube's head; content: the slot, 32 bits, and the tube's name (published_heads.h) */

    /* About a session that reserves (multi_shard_reserve.h): requests of its home; content: bs_reserve_step. */
    BS_FRAME_HEAD,
    BS_FRAME_CLAIM,      /* argument: the worst priority to accept; high half, also of TAKE and RESERVE: most jobs of a
                          * batch, or 0 */
    BS_FRAME_WAIT,
    BS_FRAME_TAKE,
    BS_FRAME_CANCEL,     /* argument: 1 to confirm it */
    BS_FRAME_RESERVE,    /* argument: 1 not to wait */

    /* And the responses. */
    BS_FRAME_HEAD_IS,    /* content: bs_head_is */
    BS_FRAME_LOST,       /* to CLAIM and TAKE */
    BS_FRAME_WAITED,     /* argument: BS_WAITED_ */
    BS_FRAME_CANCELLED,  /* argument: 0 if the reply came first */

    /* Sessions; content: bs_reserve_step (shard_waits.h). */
    BS_FRAME_AWAIT,      /* to the worker that has the job, and to those where the session holds jobs; CANCEL ends it.
                          * argument: the job, 0: none */
    BS_FRAME_AWAITED,    /* argument: BS_WAIT_ and maybe BS_WAIT_SOON */

    /* About the link itself (worker_link.h). */
    BS_FRAME_DOORBELL,   /* incarnation of the sender of this frame, with the descriptor that wakes it */
    BS_FRAME_RING,       /* with the ring that it reads */
    BS_FRAME_TO_RING     /* the next message is in the ring of the receiver */
};

/* Sends a PYTHON or FEED frame to another worker, in order. Owns the descriptor `fd`, which goes with the frame; -1:
 * none. `session` is the session at home that the frame is about, so that the worker gets its CLOSE; 0: none. -ENOENT:
 * the session has ended. -ENOTCONN: the worker is down. */
int bs_core_send(bs_core *core, uint32_t shard, uint32_t kind, uint64_t session, const char *content, size_t length,
                 int fd);

/* Sends all outboxes now, without waiting for the end of a round. */
void bs_core_flush(bs_core *core);

/* Returns the proxy for session `home` of worker `peer`, creating it if needed; 0 if that fails. */
uint64_t bs_core_proxy(bs_core *core, uint32_t peer, uint64_t home);

/* Relays output of the session's proxy at `shard` that arrived as an upcall. */
void bs_core_relay_output(bs_core *core, uint64_t session, uint32_t shard, const char *bytes, size_t length,
                          bs_now now);

/* Records that the reply for which a session waits comes from `shard`. */
void bs_core_expect(bs_core *core, uint64_t session, uint32_t shard);

/* Returns how many jobs a session has reserved here. */
int bs_core_holds(const bs_core *core, uint64_t session);

/* --- migration of a connection ---------------------------------------------------------------------------- */

/* A session on its way to another worker. */
typedef struct {
    int fd;
    bool producer;
    bool worker;
    bool eof;
    bool logged;         /* this and the next three: its trace */
    uint64_t connection; /* 0: it has no trace */
    uint64_t commands;
    int64_t opened;
    uint32_t shard;      /* where it was */
    const char *state; /* the tube used and those watched, a line each, maybe the options of the next put, then an empty
                        * line, then the bytes unread */
    size_t length;
} bs_migration;

/* Ends a session but not its connection. The caller owns the connection, and its next call must send it to worker
 * `shard`. `state` is valid until the next call for an upcall. -EBUSY: the session cannot move now, and continues. */
int bs_core_detach(bs_core *core, uint64_t session, uint32_t shard, bs_migration *migration, bs_now now);

/* Adopts a session that another worker has detached, and its descriptor, which is closed on failure. */
int bs_core_attach(bs_core *core, const bs_migration *migration, bs_now now);

/* Records that a connection from worker `shard` was lost before it became a session here. */
void bs_core_migration_lost(bs_core *core, uint32_t shard);

/* Cancels a migration; the session continues here. */
void bs_core_cancel_migration(bs_core *core, uint64_t session);

/* cdef end */

#endif
