/* core.h: all that Python sees of the C core.
 *
 * The part between the two cdef marks is read by cffi as it stands, so it keeps to plain declarations.
 *
 * Conventions of the whole core:
 *   - Functions that can fail return 0, or a negative errno or BS_ERR_ value; `bs_core_error` has the sentence.
 *   - Times are int64 nanoseconds. `mono` runs timers, `wall` (since the epoch) is only stored.
 *   - The core never prints. What it has to say goes to the event queue.
 *   - One thread calls the core. It owns two threads of its own (sync.h, spares.h), which touch only files.
 */
#ifndef BS_CORE_H
#define BS_CORE_H

#include <stddef.h>
#include <stdint.h>

/* cdef begin */

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
    uint64_t binlog_oldest;
    uint64_t binlog_current;
    uint64_t records_migrated;
    uint64_t records_written;
    uint64_t binlog_max_size; /* bytes of one file */
    uint64_t syncs;
    uint64_t pid; /* of the process that writes here; set by the parent */
} bs_counters;

enum { BS_MAX_WORKERS = 255, BS_OWNERS = 1 << 22 };

/* The memory that parent and workers share (DESIGN.md, Processes). Starts as zeros. */
typedef struct {
    uint64_t last_id;   /* of a job; atomic; the next put takes last_id + 1 */
    uint64_t last_tube; /* number of the newest tube; atomic */
    uint32_t draining;  /* set by the parent, never cleared by a worker */
    uint32_t workers;
    bs_counters worker[255]; /* BS_MAX_WORKERS */
    bs_counters parent;      /* its connections: those that have said nothing yet */
    uint32_t owner[4194304]; /* BS_OWNERS: which worker has a job, see owners.h */
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
} bs_config;

/* Beside negative errno values. */
enum {
    BS_ERR_LOCKED = -2001, /* another process has the binlog folder */
    BS_ERR_FOLDER = -2002, /* the binlog folder is missing or is no folder */
    BS_ERR_BINLOG = -2003  /* a write or sync failed: nothing may be acknowledged any more */
};

/* An event tells Python what C cannot do alone. */
enum {
    BS_EVENT_STATS = 1, /* `session` waits for the whole reply to `stats`: bs_core_answer */
    BS_EVENT_LOG = 2    /* `text` is to be logged at `level`, one of logging's numbers (20, 30, 40) */
};

typedef struct {
    int kind;
    int level;
    uint64_t session;
    char text[488];
} bs_event;

/* A mail is what the core wants of other workers (route.h, claims.h). */
enum {
    BS_MAIL_FEED = 1, /* `bytes` are to be fed to the proxy that `session` has at `shard` */
    BS_MAIL_OUTPUT,   /* `session` is a proxy for one at `shard` and says `bytes` */
    BS_MAIL_RESERVE,  /* `session` reserves on several shards, one byte of `bytes` each, until `until` */
    BS_MAIL_CLAIM,    /* the wait `token` of `session`, at home or a proxy of `shard`, has ended: `how` */
    BS_MAIL_ANYWHERE, /* the command in `bytes` is for whoever has its job; `session` waits for the reply */
    BS_MAIL_TUBES,    /* `session` waits for the reply to list-tubes */
    BS_MAIL_CLOSED,   /* `session` has ended, and its proxies with it; with `how` it was a proxy for one at `shard`,
                       * whose connection is to end */
    BS_MAIL_MOVE,     /* `session` is to move to `shard`; it executes nothing until it has or bs_core_stay. It may hold
                       * jobs at the shards in `bytes`, one byte each, and only moves if it holds none */
    BS_MAIL_PEER,     /* the socket to `shard` is readable (bit 1 of `how`) or writable (bit 2) */
    BS_MAIL_COUNT     /* the tube named `bytes` of `shard` is used `users` and watched `watchers` times here; `id` is its
                       * number in creation order, as far as is known here */
};

/* How a wait has ended (BS_MAIL_CLAIM). */
enum { BS_CLAIM_JOB = 1, BS_CLAIM_TIMED_OUT, BS_CLAIM_DEADLINE_SOON, BS_CLAIM_ANSWERED };

typedef struct {
    int kind;
    int how;
    uint32_t shard;
    uint32_t users;
    uint32_t watchers;
    uint32_t pri;     /* BS_CLAIM_JOB: of the claimed job, and its id */
    uint64_t id;
    uint64_t session;
    uint64_t token;
    int64_t until;    /* monotonic; INT64_MAX: for ever */
    const char *bytes; /* good until the next call for a mail */
    size_t length;
} bs_mail;

/* What one shard has for a session that reserves. */
typedef struct {
    int ready; /* a job that it could have now: `pri` and `id` */
    int any;   /* a watched tube has a ready job, paused or not */
    int soon;  /* a job that it holds here ends within a second */
    uint32_t pri;
    uint64_t id;
} bs_head;

/* What another worker is to this one. */
enum { BS_PEER_DOWN, BS_PEER_UP, BS_PEER_BUSY };

/* What bs_core_run wants of its caller, as bits. */
enum {
    BS_RUN_EVENTS = 1,   /* events wait: bs_core_next_event */
    BS_RUN_MORE = 2,     /* work is left: call again soon */
    BS_RUN_EXTERNAL = 4, /* the descriptor of bs_core_watch is readable */
    BS_RUN_FATAL = 8,    /* the core has stopped: bs_core_error says why */
    BS_RUN_MAIL = 16     /* mails wait: bs_core_next_mail */
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

/* The bytes a session waits for (see BS_EVENT_STATS). A session that has gone meanwhile is no error. */
int bs_core_answer(bs_core *core, uint64_t session, const char *bytes, size_t length, bs_now now);

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

/* Takes one mail: 1, or 0 when there is none. */
int bs_core_next_mail(bs_core *core, bs_mail *mail);

/* Makes bs_core_run return with BS_MAIL_PEER while this socket to another worker is readable; or writable, if wanted.
 * Again for the same descriptor to change what is wanted; closing it ends it. 0 or a negative errno. */
int bs_core_watch_peer(bs_core *core, uint32_t shard, int fd, int writable);

/* What has become of another worker. All are down at first. Commands for one that is down are answered with
 * INTERNAL_ERROR, also those that it has not answered yet; commands for a busy one stay unread. */
void bs_core_peer(bs_core *core, uint32_t shard, int state, bs_now now);

/* A session for one of worker `peer`. It uses and watches nothing, and is counted nowhere. 0 when memory ran out. */
uint64_t bs_core_open_proxy(bs_core *core, uint32_t peer, bs_now now);

/* What a session's proxy at `shard` has said. */
void bs_core_deliver(bs_core *core, uint64_t session, uint32_t shard, const char *bytes, size_t length, bs_now now);

/* What a parked session waits for comes from `shard`, in so many replies: 1, or 0 to take that back. */
void bs_core_expect(bs_core *core, uint64_t session, uint32_t shard, uint32_t replies);

/* How many jobs a session has reserved here. */
int bs_core_holds(const bs_core *core, uint64_t session);

/* Makes the proxy at `shard` know what is watched there, unless it does. */
void bs_core_tell_watches(bs_core *core, uint64_t session, uint32_t shard);

/* So many more (or fewer) sessions of other workers use and watch this tube, which was made there as `number`. 0 or
 * -ENOMEM. */
int bs_core_count_tube(bs_core *core, const char *name, size_t length, int64_t users, int64_t watchers, uint64_t number,
                       bs_now now);

/* The tubes of this shard, a line each: number, space, name. The bytes are good until the next call for them or a mail.
 * NULL when memory ran out. */
const char *bs_core_tubes(bs_core *core, size_t *length);

/* --- claims: what a reserve over several shards is made of. -ENOENT: there is no such session. --- */

int bs_core_head(bs_core *core, uint64_t session, bs_head *head, bs_now now);

/* Reserves the best job if it is not behind (pri, id) and answers RESERVED: 1. 0: someone else was faster. */
int bs_core_claim(bs_core *core, uint64_t session, uint32_t pri, uint64_t id, bs_now now);

/* Claims the best job at once or as soon as there is one: BS_MAIL_CLAIM with the token says when, and how. */
int bs_core_claim_wait(bs_core *core, uint64_t session, uint64_t token, int64_t until, bs_now now);

/* Answers RESERVED with the job that was claimed for `token`: 1. 0: its time was over meanwhile. */
int bs_core_claim_take(bs_core *core, uint64_t session, uint64_t token, bs_now now);

/* Stops that wait, and puts a job that it has claimed back as it was: 1. 0: there was nothing to stop. */
int bs_core_claim_cancel(bs_core *core, uint64_t session, uint64_t token, bs_now now);

/* The whole of a reserve of a proxy, which answers it itself; bs_core_claim_cancel stops it with any token. */
int bs_core_reserve(bs_core *core, uint64_t session, int64_t until, bs_now now);

/* --- moving a connection --- */

/* What a session is, as another worker can take it on. */
typedef struct {
    int fd;
    int producer;
    int worker;
    int eof;
    const char *state; /* the tube used and those watched, a line each, then an empty line, then the bytes unread */
    size_t length;
} bs_luggage;

/* Ends a session but not its connection, which is now the caller's. `state` is good until the next call for a mail.
 * -EBUSY: it cannot move now, and goes on here. */
int bs_core_detach(bs_core *core, uint64_t session, bs_luggage *luggage, bs_now now);

/* The opposite. Takes the descriptor over, also on failure. */
int bs_core_attach(bs_core *core, const bs_luggage *luggage, bs_now now);

/* It is not to move after all. */
void bs_core_stay(bs_core *core, uint64_t session);

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

/* --- faults, for tests ------------------------------------------------------------------------------ */

/* The binlog's system calls, in the order of the table in io.h. */
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
