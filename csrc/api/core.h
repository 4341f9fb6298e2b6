/* core.h: all that Python sees of the C core.
 *
 * The part between the two cdef marks is read by cffi as it stands, so it keeps to plain declarations.
 *
 * Conventions of the whole core:
 *   - Functions that can fail return 0, or a negative errno or BS_ERR_ value; `bs_core_error` has the sentence.
 *   - Times are int64 nanoseconds. `mono` runs timers, `wall` (since the epoch) is only stored.
 *   - The core never prints. What it has to say goes to the event queue.
 *   - One thread calls the core. It owns two threads of its own (sync_thread.h, preallocation.h), which touch only files.
 */
#ifndef BS_CORE_H
#define BS_CORE_H

#include <stddef.h>
#include <stdint.h>

/* cdef begin */

/* Bytes that one tube takes in bs_core_tube_stats. */
enum { BS_TUBE_STATS_MAX = 512 };

typedef struct bs_core bs_core;

/* The two clocks at one moment, nanoseconds. */
typedef struct {
    int64_t mono;
    int64_t wall;
} bs_now;

/* The counters that `stats` shows as cmd-*, in the order of the reply. */
enum {
    BS_CMD_PUT,
    BS_CMD_PEEK,
    BS_CMD_PEEK_READY,
    BS_CMD_PEEK_DELAYED,
    BS_CMD_PEEK_BURIED,
    BS_CMD_RESERVE,
    BS_CMD_RESERVE_WITH_TIMEOUT,
    BS_CMD_DELETE,
    BS_CMD_RELEASE,
    BS_CMD_USE,
    BS_CMD_WATCH,
    BS_CMD_IGNORE,
    BS_CMD_BURY,
    BS_CMD_KICK,
    BS_CMD_TOUCH,
    BS_CMD_STATS,
    BS_CMD_STATS_JOB,
    BS_CMD_STATS_TUBE,
    BS_CMD_LIST_TUBES,
    BS_CMD_LIST_TUBE_USED,
    BS_CMD_LIST_TUBES_WATCHED,
    BS_CMD_PAUSE_TUBE,
    BS_CMD_COUNTED
};

/* Why a put was refused. The metrics name the reasons in this order. */
typedef enum {
    BS_REFUSED_MEMORY_LIMIT,  /* bs_limits.memory */
    BS_REFUSED_BINLOG_FULL,   /* no room on disk */
    BS_REFUSED_OUT_OF_MEMORY, /* the system has no memory */
    BS_REFUSED_JOB_TOO_BIG,
    BS_REFUSED_EXPECTED_CRLF,
    BS_REFUSED_BAD_FORMAT,
    BS_REFUSED_DRAINING,
    BS_REFUSED_WORKER_DOWN,   /* the worker that has the tube is not there */
    BS_REFUSED_REASONS
} bs_refused;

/* How often a value was at most 1, 2, 4, ... up to 2^50; the last count is of all above. It only grows. */
typedef struct {
    double sum;
    uint64_t count[52]; /* BS_BUCKETS */
} bs_histogram;

enum { BS_BUCKETS = 52, BS_TIMED = 25 };

/* What one worker counts. It alone writes here; anyone may read. */
typedef struct {
    uint64_t urgent;
    uint64_t ready;
    uint64_t reserved;
    uint64_t delayed;
    uint64_t buried;
    uint64_t cmd[22]; /* BS_CMD_COUNTED */
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
    uint64_t mesh_bytes_in; /* from other workers, and to them */
    uint64_t mesh_bytes_out;
    uint64_t binlog_oldest;
    uint64_t binlog_current;
    uint64_t records_migrated;
    uint64_t records_written;
    uint64_t binlog_max_size; /* bytes of one file */
    uint64_t syncs;
    uint64_t binlog_files;
    uint64_t binlog_bytes;      /* in all files */
    uint64_t binlog_live_bytes; /* of these, in entries of live jobs that a reader needs */
    uint64_t binlog_refusing;   /* 1: another file cannot be made */
    uint64_t binlog_full;       /* 1: puts are refused for want of room on disk */
    uint64_t pid; /* of the process that writes here; set by the parent */
    bs_histogram sync_time;    /* nanoseconds of each sync */
    bs_histogram sync_entries; /* entries that each sync was the first to cover */
    bs_histogram in_queue;     /* nanoseconds, by the wall clock, from ready to reserved */
    bs_histogram latency[25];  /* BS_TIMED; nanoseconds, by bs_verb: see latency.h */
    uint64_t job_bytes;             /* memory of its jobs: job.h */
    uint64_t kept_bytes;            /* while a worker is replaced, what its binlog will bring back: these two are */
    uint64_t kept_tubes;            /* set by the parent, and 0 again when the next one has read it */
    uint64_t refused_puts[8];       /* BS_REFUSED_REASONS; by bs_refused */
    uint64_t refused_tubes;         /* commands that would have made a tube too many */
    uint64_t refused_connections;   /* the parent's: those closed as soon as they were accepted */
    uint64_t timed_out_connections; /* closed because of what their client did not do */
    uint64_t binlog_durable_file;      /* with bs_config.history: to be read by bs_durable_position */
    uint64_t binlog_durable_end;
    uint64_t deferred_dropped;        /* entries for the history that had no room */
    char apart[120];                /* to a multiple of BS_APART */
} bs_counters;

enum { BS_MAX_WORKERS = 255, BS_OWNERS = 1 << 22 };

/* Bytes between what one worker writes all the time and what others use: a line of the cache, and the next one, which
 * processors fetch with it. */
enum { BS_APART = 128 };

/* The memory that parent and workers share (DESIGN.md, Processes). Starts as zeros. */
typedef struct {
    uint64_t last_id; /* of a job; atomic; the next put takes last_id + 1 */
    char apart_1[120];
    uint64_t last_tube; /* number of the newest tube; atomic */
    uint64_t last_connection; /* number of the newest connection that is traced; atomic */
    uint32_t draining;  /* set by the parent, never cleared by a worker */
    uint32_t workers;
    char apart_2[104];
    bs_counters worker[255]; /* BS_MAX_WORKERS */
    bs_counters parent;      /* its connections: those that have said nothing yet */
    bs_counters tls;         /* of the process that speaks TLS: its handshakes are its connections */
    uint32_t owner[4194304]; /* BS_OWNERS: which worker has a job, see job_owners.h */
} bs_shared;

/* The folder of a binlog and how to write it. Strings belong to the caller and are copied. */
typedef struct {
    const char *binlog_dir;   /* NULL: nothing is written */
    int64_t file_size;        /* bytes of one file */
    int64_t sync_interval_ns; /* 0: sync before the reply; > 0: at most this often; < 0: never */
    uint32_t max_job_size;    /* bytes, without the CR LF */
    uint32_t worker;          /* index into bs_shared.worker, and the number of its shard */
    uint32_t workers;         /* how many shards there are; 0 is taken for 1 */
    const char *colocate;     /* NULL, or where the part of a tube's name ends that decides its shard */
    int history;              /* 1: whoever archives gets what it needs, see binlog.h: notes, files, the safe place */
} bs_config;

/* What is not gone beyond; 0: no limit. Sums are over all workers. */
typedef struct {
    uint64_t memory;           /* bytes of jobs (bs_counters.job_bytes); puts beyond are refused */
    uint64_t tubes;            /* a command that would make one more is refused */
    uint64_t output;           /* bytes of replies that a client has not taken; it is not read from meanwhile. Not 0 */
    int64_t idle_timeout_ns;   /* client_timeouts.h: of a client that says nothing, */
    int64_t send_timeout_ns;   /* that does not finish what it has begun to say, */
    int64_t output_timeout_ns; /* that takes no replies */
} bs_limits;

/* Beside negative errno values. */
enum {
    BS_ERR_LOCKED = -2001, /* another process has the binlog folder */
    BS_ERR_FOLDER = -2002, /* the binlog folder is missing or is no folder */
    BS_ERR_BINLOG = -2003  /* a write or sync failed: nothing may be acknowledged any more */
};

/* An event tells Python what C cannot do alone. */
enum {
    BS_EVENT_STATS = 1, /* `session` waits for the whole reply to `stats`: bs_core_answer */
    BS_EVENT_LOG = 2,   /* `text` is to be logged at `level`, one of logging's numbers (20, 30, 40) */
    /* Of a connection that is traced: */
    BS_EVENT_ACCEPTED,
    BS_EVENT_MOVED,     /* it has come from worker `shard` */
    BS_EVENT_CLOSED,    /* `duration` after it was accepted and after `count` commands; `cause` is BS_CLOSED_ */
    BS_EVENT_COMMAND,   /* the line is `text`; `word`, `job` and `tube` are what it says, if it is a command */
    BS_EVENT_JOB,       /* the body of `job` has come, `count` bytes */
    BS_EVENT_REPLY,     /* the first line is `text` */
    BS_EVENT_SLOW,      /* the reply to `word`, about `job` or `tube`, took `duration`, and `count` others left
                         * with it; `cause` is BS_SLOW_ */
    BS_EVENT_SLOW_MORE  /* so did `count` others, not logged for their number */
};

/* Why a connection has ended. */
enum { BS_CLOSED_QUIT = 1, BS_CLOSED_BY_CLIENT, BS_CLOSED_BROKEN };

/* What a reply waited for. */
enum { BS_SLOW_UNKNOWN, BS_SLOW_SYNC, BS_SLOW_WORKER };

enum { BS_FROM_MAX = 64, BS_WORD_MAX = 24 };

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
    int cut;             /* the line was too long, and is not told */
    uint32_t length;     /* of `text`, which is a client's and may have any bytes, if it is a line */
    char from[64];       /* BS_FROM_MAX: the client's address */
    char word[24];       /* BS_WORD_MAX */
    char tube[208];
    char text[488];
} bs_event;

/* What of clients becomes events (trace.h). */
enum { BS_TRACE_NOTHING, BS_TRACE_CONNECTIONS, BS_TRACE_COMMANDS };

/* An upcall is what Python has to decide with other workers (remote_commands.h, claims.h), or what those say to it. */
enum {
    BS_UPCALL_FRAME = 1, /* worker `shard` has sent the frame `bytes`, with the descriptor `fd`, the caller's, if that is
                       * not -1. What this worker has sent behind it is kept for bs_core_read_on */
    BS_UPCALL_PEER_CLOSED,     /* the worker `shard` has closed its end, or died: bs_core_lose_peer */
    BS_UPCALL_PROTOCOL_ERROR, /* what the worker `shard` has sent is no frame */
    BS_UPCALL_RESERVE,  /* `session` reserves on several shards, one byte of `bytes` each, until `until` */
    BS_UPCALL_CLAIM_ENDED,    /* the wait `token` of `session`, at home, has ended: `how` */
    BS_UPCALL_FIND_JOB, /* the command in `bytes` is for whoever has its job; `session` waits for the reply */
    BS_UPCALL_LIST_TUBES,    /* `session` waits for the reply to list-tubes */
    BS_UPCALL_SESSION_CLOSED,   /* `session`, at home or a proxy of `shard`, has ended; those with a proxy for it are told */
    BS_UPCALL_MIGRATE,     /* `session` is to move to `shard`; it executes nothing until it has or bs_core_stay. It may hold
                       * jobs at the shards in `bytes`, one byte each, and only moves if it holds none */
    BS_UPCALL_CLAIMS_DECIDED   /* what bs_core_head or bs_core_reserve was asked for `session`, at home or a proxy of `shard`,
                       * can be answered now */
};

/* How a wait has ended (BS_UPCALL_CLAIM_ENDED). */
enum { BS_CLAIM_JOB = 1, BS_CLAIM_TIMED_OUT, BS_CLAIM_DEADLINE_SOON, BS_CLAIM_ANSWERED };

typedef struct {
    int kind;
    int how;
    uint32_t shard;
    int fd;           /* -1: none */
    uint64_t session;
    uint64_t token;
    int64_t until;    /* monotonic; INT64_MAX: for ever */
    const char *bytes; /* good until the next call for an upcall */
    size_t length;
} bs_upcall;

/* What one shard has for a session that reserves. */
typedef struct {
    int ready; /* a job that it could have now: `pri` and `id` */
    int any;   /* a watched tube has a ready job, paused or not */
    int soon;  /* a job that it holds here ends within a second */
    int holds; /* how many jobs it holds here */
    uint32_t pri;
    uint64_t id;
} bs_head;

/* What bs_core_run wants of its caller, as bits. */
enum {
    BS_RUN_EVENTS = 1,   /* events wait: bs_core_next_event */
    BS_RUN_MORE = 2,     /* work is left: call again soon */
    BS_RUN_EXTERNAL = 4, /* the descriptor of bs_core_watch is readable */
    BS_RUN_FATAL = 8,    /* the core has stopped: bs_core_error says why */
    BS_RUN_UPCALLS = 16     /* upcalls wait: bs_core_next_upcall */
};

/* --- placement -------------------------------------------------------------------------------------- */

/* The shard of a tube among `workers`: a jump consistent hash (Lamping and Veach, 2014) of its name, or of what comes
 * before the first `colocate` in it, if that is not NULL. */
uint32_t bs_shard_of(const char *name, size_t length, uint32_t workers, const char *colocate);

/* --- life ------------------------------------------------------------------------------------------- */

/* A core without connections or binlog; `shared` must outlive it. NULL when memory or descriptors ran out. */
bs_core *bs_core_new(const bs_config *config, bs_shared *shared, bs_now now);

/* Opens config.binlog_dir: takes its lock, reads what it holds, starts a new file. Without a folder: nothing. */
int bs_core_recover(bs_core *core, bs_now now);

/* Stops in order: writes and syncs what is left, sends the replies that waited for it, cuts the last file,
 * gives up the lock. 0 or BS_ERR_BINLOG. */
int bs_core_stop(bs_core *core);

/* Frees everything, closes every descriptor the core owns. Writes nothing. */
void bs_core_free(bs_core *core);

/* The sentence for the last error; belongs to the core. */
const char *bs_core_error(const bs_core *core);

/* The clocks as the core reads them. */
bs_now bs_now_read(void);

/* New values for what bs_config has by these names, from now on. An interval below 0 stays, and none becomes one. */
void bs_core_change(bs_core *core, uint32_t max_job_size, int64_t sync_interval_ns);

/* These limits hold from now on. Without a call there are none but that of output, 1 MiB. */
void bs_core_limit(bs_core *core, const bs_limits *limits, bs_now now);

/* What becomes events from now on: `level` is BS_TRACE_, and commands whose reply takes `slow_ns` or longer;
 * 0: none of those. */
void bs_core_trace(bs_core *core, int level, int64_t slow_ns);

/* --- the safe place, for whoever reads the files in another process ---------------------------------- */

/* What is before offset `*end` of file `*file`, and all files of lower numbers, will be there after a crash of the
 * machine; if nothing is ever synced, it has been written. It only moves on, stays when the worker ends, and is 0, 0
 * until a worker has read the folder. 0: it was just being changed, so try again. Needs no lock; any process may ask. */
int bs_durable_position(const bs_counters *counters, uint64_t *file, uint64_t *end);

/* --- the loop --------------------------------------------------------------------------------------- */

/* The descriptor that is readable when bs_core_run has something to do. */
int bs_core_fd(const bs_core *core);

/* Runs rounds; BS_RUN_ bits. It returns when Python is wanted, at the latest after budget_ns. With `linger` it waits
 * for more until then, because coming back costs more than waiting here; without, it returns when nothing is left. */
int bs_core_run(bs_core *core, int64_t budget_ns, int linger);

/* Takes over a connected socket (closed by the core, also on failure). */
int bs_core_adopt(bs_core *core, int fd);

/* Takes over every socket that arrives by SCM_RIGHTS on this Unix socket, which stays the caller's. A message has as
 * many bytes as descriptors, 64 at most, so that those that could not be received are known and counted as closed. */
int bs_core_adopt_from(bs_core *core, int channel_fd);

/* Makes bs_core_run return with BS_RUN_EXTERNAL while this descriptor is readable. */
int bs_core_watch(bs_core *core, int fd);

/* Takes one event: 1, or 0 when there is none. */
int bs_core_next_event(bs_core *core, bs_event *event);

/* Producers and workers among the connections of all workers, as they were when the last BS_EVENT_STATS was added. */
void bs_core_roles(const bs_core *core, uint64_t *producers, uint64_t *workers);

/* The bytes a session waits for (see BS_EVENT_STATS). A session that has gone meanwhile is no error. */
int bs_core_answer(bs_core *core, uint64_t session, const char *bytes, size_t length, bs_now now);

/* --- who is connected --- */

/* Where a connection comes from: HOST:PORT, [HOST]:PORT for IPv6, pid:PID by a Unix socket; "gone" if the system does
 * not tell any more. The text has BS_FROM_MAX bytes. */
void bs_from(int fd, char *text);

/* A connection, or a proxy: then `id` and `home` are those of the session it stands for. */
typedef struct {
    uint64_t id;
    uint32_t home;
    int fd; /* -1: a proxy */
    int proxy;
    int waits;     /* in a reserve, until `until` (monotonic; INT64_MAX: for ever) */
    int producer;
    int worker;
    int64_t until;
    uint32_t watching;
    uint32_t holds; /* jobs reserved here */
    size_t unread;  /* bytes received and not executed */
    size_t unsent;  /* bytes of replies that have not left */
    const char *use;
    const char *lists; /* a line each: the first 64 tubes it watches, nothing, the ids of 64 of the jobs it holds */
    size_t length;
} bs_session_facts;

/* The session in a slot, counted from 0: 1; 0 for an empty slot, -ENOENT behind the last one, -ENOMEM. The pointers are good
 * until the next call for it or an upcall. */
int bs_core_session_at(bs_core *core, uint32_t slot, bs_session_facts *facts);

/* --- compacting the binlog on request --- */

enum {
    BS_COMPACT_DONE,
    BS_COMPACT_MORE, /* there is more to move: call again, after a round */
    BS_COMPACT_WAIT  /* the same later: a sync, or room on the disk, is waited for */
};

/* `last` is 0 at first, and then what the call before has left. */
typedef struct {
    int outcome;
    uint32_t last; /* the file that was written to at first; no job of a later one is moved, so it ends under any load */
    int64_t bytes; /* of all files */
    int64_t alive; /* of what is needed in them */
} bs_compact_state;

/* Moves jobs out of the oldest files, about a million bytes, until there are at most `per_cent` bytes in all files for
 * every hundred that are needed, or all files up to `last` are gone. */
void bs_core_compact(bs_core *core, int64_t per_cent, bs_compact_state *state, bs_now now);

/* --- emptying a tube on request --- */

enum {
    BS_TRUNCATE_DONE,
    BS_TRUNCATE_MORE, /* call again, after a round */
    BS_TRUNCATE_WAIT  /* the same later, with `most` 0: what was removed is on its way to the disk */
};

/* All zeros at first, and then what the call before has left. */
typedef struct {
    int outcome;
    uint64_t removed;
    uint64_t gen; /* what has to be on disk */
} bs_truncate_state;

/* Removes at most so many jobs of a tube of this shard that are in one of these states (bits 1 << BS_READY, BS_DELAYED,
 * BS_BURIED of job.h), as deletes that nobody is counted for; the binlog says that they were truncated. It ends when
 * none is left, and where replies wait for the disk, when it is there. 0, or -ENOSPC: there is no room to note more. */
int bs_core_truncate(bs_core *core, const char *tube, size_t length, unsigned states, uint32_t most,
                     bs_truncate_state *state, bs_now now);

/* --- sessions without a socket: bytes in, bytes out -------------------------------------------------- */

/* A new session, or 0 when memory ran out. */
uint64_t bs_core_open(bs_core *core, bs_now now);

/* Feeds bytes. -ENOENT: the session has ended. */
int bs_core_feed(bs_core *core, uint64_t session, const char *bytes, size_t length, bs_now now);

/* No more bytes will come: what a client says by closing its sending side. */
int bs_core_finish(bs_core *core, uint64_t session, bs_now now);

/* Moves up to `capacity` bytes of output that may leave into `buffer`; how many, or -ENOENT. Call bs_core_commit first:
 * what is not written yet must not be told. A session that had too much output goes on with the next tick or commit. */
int64_t bs_core_output(bs_core *core, uint64_t session, char *buffer, size_t capacity);

/* Ends a session as a closed connection does. Unknown ones are ignored. */
void bs_core_close(bs_core *core, uint64_t session, bs_now now);

/* Runs the timers that are due; the monotonic time of the next one, INT64_MAX without any. */
int64_t bs_core_tick(bs_core *core, bs_now now);

/* Ends a round: writes the binlog and, where replies wait for it, syncs in this thread and lets them go. */
int bs_core_commit(bs_core *core, bs_now now);

/* --- other workers ---------------------------------------------------------------------------------- */

/* Takes one upcall: 1, or 0 when there is none. */
int bs_core_next_upcall(bs_core *core, bs_upcall *upcall);

/* Goes on with what other workers have sent behind the frames that were handed out as upcalls, which have been dealt
 * with. 1: there are upcalls again. */
int bs_core_read_on(bs_core *core, bs_now now);

/* Takes over a socket to another worker, SOCK_SEQPACKET, also on failure. The last one to it has been lost before.
 * 0 or a negative errno. Workers without a socket are down: commands for them are answered with INTERNAL_ERROR. */
int bs_core_add_peer(bs_core *core, uint32_t shard, int fd, bs_now now);

/* Closes it, forgets what was meant for it, and ends what was done here for the sessions of that worker. Commands it
 * has not answered are answered with INTERNAL_ERROR. */
void bs_core_lose_peer(bs_core *core, uint32_t shard, bs_now now);

/* Says a whole frame to another worker, behind all that was said before; with a descriptor unless it is -1, which is
 * closed when it has left, also on failure. `session`: the one at home that it is about, so that this worker will be
 * told of its end; 0: it is no such frame. -ENOENT: it has ended. -ENOTCONN: that worker is down. */
int bs_core_send(bs_core *core, uint32_t shard, uint64_t session, const char *frame, size_t length, int fd);

/* Sends now what has been said, without waiting for the end of a round. */
void bs_core_flush(bs_core *core);

/* The proxy for session `home` of worker `peer`, made if need be. It uses and watches nothing of itself, and is counted
 * nowhere. 0: it has failed. */
uint64_t bs_core_proxy(bs_core *core, uint32_t peer, uint64_t home);

/* Whom a proxy stands for; 0: it is none, or has ended. */
uint64_t bs_core_home(const bs_core *core, uint64_t proxy);

/* What a session's proxy at `shard` has said, if it was handed out as an upcall. */
void bs_core_deliver(bs_core *core, uint64_t session, uint32_t shard, const char *bytes, size_t length, bs_now now);

/* What a parked session waits for comes from `shard`, in so many replies: 1, or 0 to take that back. */
void bs_core_expect(bs_core *core, uint64_t session, uint32_t shard, uint32_t replies);

/* A session is known to hold no job at `shard`. */
void bs_core_holds_nothing(bs_core *core, uint64_t session, uint32_t shard);

/* How many jobs a session has reserved here. */
int bs_core_holds(const bs_core *core, uint64_t session);

/* Makes the proxy at `shard` know what is watched there, unless it does. */
void bs_core_tell_watches(bs_core *core, uint64_t session, uint32_t shard);

/* The tubes of this shard, a line each: number, space, name. The bytes are good until the next call for them or an upcall.
 * NULL when memory ran out. */
const char *bs_core_tubes(bs_core *core, size_t *length);

/* The statistics of tubes of this shard from slot `*first` on, counted from 0, as a msgpack array each: its name as
 * bytes, and the numbers that control/tube_stats.py lists, times in milliseconds. Writes at most `capacity` bytes, at least
 * BS_TUBE_STATS_MAX; how many. `*first` is then where to go on, or -1 behind the last one. A tube that is there all
 * the time is given once, whatever comes and goes meanwhile. */
size_t bs_core_tube_stats(const bs_core *core, int64_t *first, char *buffer, size_t capacity, bs_now now);

/* --- claims: what a reserve over several shards is made of. -ENOENT: there is no such session. --- */

/* -EAGAIN: a claimed job may be put back (pending_claims.h); BS_UPCALL_CLAIMS_DECIDED says when to ask again, `certain`. */
int bs_core_head(bs_core *core, uint64_t session, int certain, bs_head *head, bs_now now);

/* Reserves the best job if its priority is `pri` or better, and answers RESERVED: 1. 0: there is none. -EAGAIN: as for
 * bs_core_head. */
int bs_core_claim(bs_core *core, uint64_t session, uint32_t pri, int certain, bs_now now);

/* Claims the best job at once or as soon as there is one: BS_UPCALL_CLAIM_ENDED with the token says when, and how. */
int bs_core_claim_wait(bs_core *core, uint64_t session, uint64_t token, int64_t until, bs_now now);

/* Answers RESERVED with the job that was claimed for `token`: 1. 0: its time was over meanwhile. */
int bs_core_claim_take(bs_core *core, uint64_t session, uint64_t token, bs_now now);

/* Stops that wait, and puts a job that it has claimed back as it was: 1. 0: there was nothing to stop. */
int bs_core_claim_cancel(bs_core *core, uint64_t session, uint64_t token, bs_now now);

/* The whole of a reserve of a proxy, which answers it itself; bs_core_claim_cancel stops it with any token. -EAGAIN: as for
 * bs_core_head. */
int bs_core_reserve(bs_core *core, uint64_t session, int64_t until, int certain, bs_now now);

/* --- moving a connection --- */

/* What a session is, as another worker can take it on. */
typedef struct {
    int fd;
    int producer;
    int worker;
    int eof;
    int told;            /* these four are those of its trace, if it has one */
    uint64_t connection; /* 0: it has none */
    uint64_t commands;
    int64_t opened;
    uint32_t shard;      /* where it was */
    const char *state; /* the tube used and those watched, a line each, then an empty line, then the bytes unread */
    size_t length;
} bs_migration;

/* Ends a session but not its connection, which is now the caller's. `state` is good until the next call for an upcall.
 * -EBUSY: it cannot move now, and goes on here. It goes to worker `shard`, and the very next call has to send it. */
int bs_core_detach(bs_core *core, uint64_t session, uint32_t shard, bs_migration *migration, bs_now now);

/* The opposite. Takes the descriptor over, also on failure. */
int bs_core_attach(bs_core *core, const bs_migration *migration, bs_now now);

/* A connection that worker `shard` has sent never became a session here. */
void bs_core_lost_move(bs_core *core, uint32_t shard);

/* It is not to move after all. */
void bs_core_stay(bs_core *core, uint64_t session);

/* --- memory ------------------------------------------------------------------------------------------ */

/* Gives freed memory of this process back to the system: about 0.1 s per GB. */
void bs_trim_memory(void);

/* --- moving the jobs of whole folders ---------------------------------------------------------------- */

/* Writes jobs as files of new folders, one folder per shard. It has no part in serving: no session, no queue. */
typedef struct bs_transfer bs_transfer;

/* As bs_core_recover, but starts no file, so that the folder stays what it is. Such a core keeps the folder's lock and
 * its jobs until it is freed, and is good for nothing but bs_core_damaged and bs_transfer_add. */
int bs_core_read(bs_core *core, bs_now now);

/* The number of the index-th of its files with unreadable entries; 0: there are no more. */
uint32_t bs_core_damaged(const bs_core *core, uint32_t index);

/* `folders` are `shards` empty ones; the strings stay the caller's. `file_size` is bytes: a file gets larger only when
 * a single job is. 0 or a negative errno; after 0 the caller owns *made. */
int bs_transfer_new(const char *const *folders, uint32_t shards, const char *colocate, int64_t file_size,
                    bs_transfer **made);

/* Takes note of the jobs of a core that has read its folder and must outlive the transfer. 0 or -ENOMEM. */
int bs_transfer_add(bs_transfer *transfer, const bs_core *from);

/* After the last bs_transfer_add, with the same time as in bs_core_read: brings the jobs into the order of writing and
 * says `last_id` in every folder. Of jobs with the same id, all but one get new ones, above last_id. The number of
 * jobs, or a negative errno. */
int64_t bs_transfer_start(bs_transfer *transfer, uint64_t last_id, bs_now now);

/* Writes jobs of at least so many bytes together. How many are left, or a negative errno. */
int64_t bs_transfer_write(bs_transfer *transfer, int64_t bytes);

/* Syncs and closes the files, not the folders. How many jobs have got new ids, or a negative errno. */
int64_t bs_transfer_finish(bs_transfer *transfer);

/* Frees it and closes what is open. NULL is ignored. */
void bs_transfer_free(bs_transfer *transfer);

/* --- reading a folder without a server -------------------------------------------------------------- */

/* Reads the files of one whole folder, oldest first, and knows where each live job's entries are. It takes no lock and
 * changes nothing, so a server may be running there. Memory: two windows of files and about 10 bytes for each live job,
 * 5 more if it has a short entry (entry_index.h). */
typedef struct bs_reader bs_reader;

/* What bs_reader_open has found. */
enum { BS_FILE_EMPTY, BS_FILE_ENTRIES, BS_FILE_VERSION };

/* Why bs_reader_run has come back. */
enum { BS_READ_END, BS_READ_MORE, BS_READ_FAULT };

/* The file that was opened last. */
typedef struct {
    uint32_t number;
    int version;
    uint64_t bytes;  /* of the file */
    uint64_t offset; /* where reading stands */
    uint64_t end;    /* behind its last entry */
    uint64_t full_entries;
    uint64_t short_entries;
    uint64_t lengths;  /* of these, those that say how long an earlier file is */
    uint64_t at;       /* of the fault */
    uint64_t next;     /* where reading goes on behind it, or `bytes` */
    int torn;          /* it is what remains of an entry being written at the end */
    const char *fault; /* good until the next run */
} bs_read_facts;

/* What a file says of an earlier one: where its entries ended when it was complete. */
typedef struct {
    uint32_t number;  /* of the earlier file */
    uint32_t stated_in; /* of the file that says so */
    uint64_t length;  /* bytes */
    int outdated;     /* they were not on disk then, and this is another boot */
} bs_read_length;

/* One file after bs_reader_tally. */
typedef struct {
    uint32_t number;
    uint64_t jobs;       /* live ones with their full entry here: they pin it */
    uint64_t live_bytes; /* full and last short entries of live jobs */
} bs_usage;

/* What is to be printed of what is read. Strings are copied. */
typedef struct {
    int json;             /* else columns */
    const uint64_t *ids;  /* only these, if there are any */
    size_t id_count;
    const char *const *tubes; /* the same */
    size_t tube_count;
    unsigned states;      /* 1 << state */
    int64_t since;        /* wall; entries without a time count as of the latest known before them */
    int64_t until;        /* not included */
} bs_print;

/* `width` bytes for a position, 5 to 8: the folder is to have less than 1 << (8 * width) bytes. 0 or a negative errno;
 * after 0 the caller owns *made. NULL is ignored by bs_reader_free. */
int bs_reader_new(const char *folder, int width, bs_reader **made);
void bs_reader_free(bs_reader *reader);

/* From now on entries become text, to be taken from bs_reader_text. 0 or -ENOMEM. */
int bs_reader_print(bs_reader *reader, const bs_print *print);

/* The text since the last bs_reader_run; good until the next. */
const char *bs_reader_text(bs_reader *reader, size_t *length);

/* Opens binlog.<number>, which text calls `label`. A BS_FILE_ value or a negative errno. */
int bs_reader_open(bs_reader *reader, uint32_t number, const char *label);

/* Reads on, `budget` bytes or until there is much text. A BS_READ_ value; -ENOMEM. At a fault it stays. */
int bs_reader_run(bs_reader *reader, uint64_t budget);

/* Goes on behind a fault. 0 or -ENOMEM. */
int bs_reader_accept(bs_reader *reader);

/* Looks at the open file anew, because somebody writes to it. 0 or a negative errno. */
int bs_reader_refresh(bs_reader *reader);

/* Jobs known so far whose full entry is in a file read before are forgotten: those files have been removed. */
int bs_reader_forget(bs_reader *reader);

const bs_read_facts *bs_reader_facts(const bs_reader *reader);

/* The `index`th of these of all files so far, in the order of reading: 1, or 0 when there are no more. */
int bs_reader_length(const bs_reader *reader, uint64_t index, bs_read_length *length);
uint64_t bs_reader_jobs(const bs_reader *reader);
uint64_t bs_reader_last_id(const bs_reader *reader);

/* Counts by file what is live; the whole of it, or a negative errno. Then bs_reader_usage has each file that
 * bs_reader_open took for one with entries: 1, or 0 when there are no more. */
int64_t bs_reader_tally(bs_reader *reader);
int bs_reader_usage(const bs_reader *reader, uint32_t index, bs_usage *usage);

/* --- the same jobs in new files --- */

/* Writes one full entry for each live job that a reader knows, in the order of their last entries, and the highest id.
 * The reader must have read all files and outlive it. */
typedef struct bs_rewrite bs_rewrite;

typedef struct {
    uint64_t read;    /* bytes of the old files so far */
    uint64_t jobs;    /* written */
    uint64_t bytes;   /* written */
    uint32_t files;   /* begun */
} bs_rewrite_stats;

/* Files are named binlog.<first>, and so on, with `suffix` behind, in `folder`, where none of them may be. `file_size`
 * is bytes: a file gets larger only when a single job is. `wall` is the time for what has none. 0 or a negative errno;
 * after 0 the caller owns *made. NULL is ignored by bs_rewrite_free. */
int bs_rewrite_new(bs_reader *from, const char *folder, uint32_t first, const char *suffix, int64_t file_size,
                   int64_t wall, bs_rewrite **made);

/* Reads on, `budget` bytes: 1, or 0 when all is written and synced, but not the folder; or a negative errno, -ESTALE
 * when the old files are not any more what was read. */
int bs_rewrite_run(bs_rewrite *rewrite, uint64_t budget);
const bs_rewrite_stats *bs_rewrite_progress(const bs_rewrite *rewrite);
void bs_rewrite_free(bs_rewrite *rewrite);

/* --- the lives of jobs, for a history --------------------------------------------------------------- */

/* Reads binlog files of several folders while servers write to them, and has a message for each job that was finished.
 * It takes no lock and changes nothing. Memory: about 13 bytes for an open job that has only been put, some 200 for one
 * that more has happened to, and 250 KB for each folder. */
typedef struct bs_history bs_history;

typedef struct {
    uint64_t open;     /* jobs */
    uint64_t finished; /* those that have a message */
    uint64_t orphans;  /* ended without one, because their full entry was never seen */
    uint64_t left_out; /* bodies that were too large, or could not be read */
    uint64_t bytes;    /* read of files */
} bs_history_stats;

/* Messages have at most `most_body` bytes of body, and so many events: at least 2; more than 500 are
 * as 500. 0 or
 * a negative errno; after 0 the caller owns *made. NULL is ignored by bs_history_free. */
int bs_history_new(uint64_t most_body, uint32_t most_events, bs_history **made);
void bs_history_free(bs_history *lives);

/* Follows a folder, from its first file on; UNIQ_KEY of its messages begins with `key`. Its number, or a negative
 * errno. */
int bs_history_add_folder(bs_history *lives, const char *path, const char *key);

/* Before anything is read. Entries before this place make no events of jobs that were carried in; entries at or before
 * that place make no messages. 0 or -EINVAL. */
int bs_history_set_checkpointed(bs_history *lives, uint32_t folder, uint32_t file, uint64_t offset);
int bs_history_set_archived(bs_history *lives, uint32_t folder, uint32_t file, uint64_t offset);

/* Why bs_history_read has come back: all that is safe is read; the budget is used up; a topic is needed. */
enum { BS_HISTORY_END, BS_HISTORY_MORE, BS_HISTORY_TOPIC };

/* Reads on, about `budget` bytes of files or as many of messages: what lies before `safe_end` in the file `safe_file`,
 * and all in files with lower numbers. A BS_LIVES_ value; or a negative errno, and then there are no messages. */
int bs_history_read(bs_history *lives, uint32_t folder, uint32_t safe_file, uint64_t safe_end, uint64_t budget);

/* What the last bs_history_read has made: a batch of hs_item (store/store.h), good until the next. */
const char *bs_history_items(const bs_history *lives, size_t *length, uint64_t *count);

/* BS_HISTORY_TOPIC: the tube whose topic is needed. The topic has at most 255 bytes: 0, -EINVAL or -ENOMEM. */
const char *bs_history_tube(const bs_history *lives, size_t *length);
int bs_history_set_topic(bs_history *lives, const char *topic, size_t length);

/* Where reading goes on. 0 or -EINVAL. */
int bs_history_position(const bs_history *lives, uint32_t folder, uint32_t *file, uint64_t *offset);

/* Forgets jobs that were carried in and of which no full entry has been read: they have ended meanwhile. For when all
 * folders of a server have been read. 0 or -ENOMEM. */
int bs_history_drop_unseen(bs_history *lives);

/* Files with lower numbers are not needed any more: they are read, and no open job has its full entry there. */
int64_t bs_history_needed_from(bs_history *lives, uint32_t folder);

/* Takes what was wrong: 1, or 0 when there is nothing more. `what` is good until the next call of any kind. */
int bs_history_next_fault(bs_history *lives, uint32_t *folder, uint32_t *file, uint64_t *offset, const char **what);

const bs_history_stats *bs_history_get_stats(bs_history *lives);

/* What cannot be read again: the jobs of which more is known than their put, and how far folders are read. Bytes that
 * are good until the next call of it, NULL: no memory. They go in before anything is read: 0, -EBADMSG, -EINVAL or
 * -ENOMEM. */
const char *bs_history_save_checkpoint(bs_history *lives, size_t *length);
int bs_history_load_checkpoint(bs_history *lives, const char *data, size_t length);

/* --- frames (frames.h), declared here for tests ------------------------------------------------------ */

/* What a frame of the core's says. The bytes are those it was read from. */
typedef struct {
    int kind;
    uint64_t session;  /* the home's number; never 0 where there is one */
    const char *bytes; /* of a session, or the name of a tube */
    size_t length;
    uint64_t users;
    uint64_t watchers;
    uint64_t holds;
    uint64_t number;
    uint64_t adopted;
    uint64_t producers;
    uint64_t workers;
    uint64_t moves;
} bs_frame;

/* How far the search for the end of a frame has come; all zeros at its start. */
typedef struct {
    size_t at;
    uint64_t items; /* values still to come */
} bs_frame_scan;

/* How long the frame is that begins these bytes. 0: it goes on behind them; with more bytes behind the same ones the
 * next call goes on where this one stopped. -EBADMSG: no msgpack, or a frame of more than BS_FRAME_MAX. */
int64_t bs_frame_end(bs_frame_scan *scan, const char *bytes, size_t length);

/* Reads a whole frame. What is not exactly as one of the core's has to be is BS_FRAME_OTHER. */
bs_frame bs_frame_read(const char *bytes, size_t length);

/* These write as msgpack would, each number and length in as few bytes as it takes, and tell how many: at most
 * BS_FRAME_HEAD_MAX, COUNT at most BS_FRAME_COUNT_MAX. */

/* What comes before `length` bytes of FEED or OUTPUT. */
size_t bs_frame_write_head(char *out, int kind, uint64_t session, size_t length);

/* A frame with one number: CLOSE, ENDED, SYNC, SYNCED or ARRIVED. */
size_t bs_frame_write_end(char *out, int kind, uint64_t session);
size_t bs_frame_write_waited(char *out, uint64_t session, uint64_t token, int how);

/* `name` has at most 200 bytes. */
size_t bs_frame_write_count(char *out, const char *name, size_t length, uint32_t users,
                            uint32_t watchers, uint32_t holds, uint64_t number);
size_t bs_frame_write_census(char *out, uint64_t adopted, uint64_t producers, uint64_t workers, uint64_t moves);

/* --- faults, for tests ------------------------------------------------------------------------------ */

/* The binlog's system calls, in the order of the table in file_io.h. */
enum {
    BS_IO_OPEN,
    BS_IO_WRITE,
    BS_IO_READ,
    BS_IO_DATASYNC,
    BS_IO_SYNC,
    BS_IO_TRUNCATE,
    BS_IO_RENAME,
    BS_IO_UNLINK,
    BS_IO_LOCK,
    BS_IO_FILL, /* the zeros of a new file */
    BS_IO_NOTE, /* the line in the lock file */
    BS_IO_CALLS
};

/* From now on the nth call (1 is the next) of each kind in the mask (1 << BS_IO_...) fails with `error`, counted
 * together; with `lasting` all later ones too. A write that fails with ENOSPC or EIO first writes half its bytes.
 * nth 0 takes the fault away. */
void bs_io_fail(unsigned mask, int64_t nth, int error, int lasting);

/* Calls of one kind since the process started. */
int64_t bs_io_calls(int kind);

/* cdef end */

#endif
