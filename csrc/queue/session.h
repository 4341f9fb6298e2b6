/* A session: one client's view of the server, and the table of all sessions.
 *
 * It has what the queue needs of a client (used tube, watch list, reserved jobs, whether it waits), its input that is
 * not executed yet, and its output that has not left. A local session has a socket; without one the same bytes pass
 * through api/server.h.
 *
 * Output has three parts, in order: bytes that may leave; bytes held until the running sync ends; bytes held until the
 * next sync. A reply is held as long as its bs_hold requires, and never overtakes an earlier one.
 */
#ifndef BS_SESSION_H
#define BS_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/heap.h"
#include "binlog/binlog.h"
#include "jobs/job.h"
#include "jobs/tube.h"
#include "protocol/put_options.h"

typedef struct bs_session bs_session;
typedef struct bs_remote bs_remote;
typedef struct bs_trace bs_trace;
typedef struct bs_job_waiter bs_job_waiter;

/* One watched tube of one session; in the tube's list of waiters while the session waits. */
struct bs_watch {
    bs_session *session;
    bs_tube *tube;
    bs_watch *previous;
    bs_watch *next;
};

/* The meaning of the next input bytes. */
typedef enum {
    BS_INPUT_LINE,      /* a command */
    BS_INPUT_LONG_LINE, /* a command line over the limit, up to its CR LF */
    BS_INPUT_BODY,      /* the body of `incoming` */
    BS_INPUT_SKIP       /* the body of a refused put; then `skip_reply` */
} bs_input;

typedef struct bs_session_link {
    bs_session *previous;
    bs_session *next;
} bs_session_link;

/* The lists of bs_server that a session can be in, each at most once. */
enum {
    BS_LIST_DIRTY,      /* has output that may leave, or must be closed */
    BS_LIST_HELD,       /* has output that waits for a sync */
    BS_LIST_RUNNABLE,   /* has input to execute */
    BS_LIST_MORE_INPUT, /* its socket may have more input; read in the next round */
    BS_LIST_RESERVING,  /* its reserve has an event to process (reserve_requests.h) */
    BS_LIST_ASKING,     /* its reserve may wait for heads; by the time of the request */
    BS_LISTS
};

struct bs_session {
    uint64_t id;            /* its slot in the low half, a serial number in the high half; never 0 */
    bs_tube *use;
    bs_watch *watches;      /* in the order of watching; unchanged while the session waits */
    uint32_t watch_count;
    uint32_t watch_capacity;
    bs_heap reserved;       /* jobs by deadline */
    uint64_t *reserved_ids; /* of jobs in the order of reserving; released jobs are pruned later */
    uint32_t id_count;
    uint32_t id_capacity;
    int64_t reserve_until;  /* waiting: INT64_MAX: forever */
    bs_job_waiter *waiter;  /* owned; waiting for a job (job_waits.h), not in a reserve; NULL: no */
    uint32_t place;         /* in the heap of sessions by time */
    uint32_t timeout_place; /* in the heap of timeout_schedule.h */
    int64_t received_at;    /* mono; of the last input */
    int64_t sent_at;        /* mono; when the socket last accepted output, or first refused it */
    int64_t not_idle_at;    /* mono; the idle timeout starts again here */
    int fd;                 /* -1: none */

    bs_bytes in;              /* received, not executed */
    bs_bytes out;
    size_t may_leave;         /* bytes of `out` */
    size_t barrier_bytes;     /* bytes of `in` that arrived before the last barrier: they need no other one */
    size_t after_sync;        /* bytes of `out` that may leave after the running sync; the rest after the next one */
    bs_job *incoming;         /* the put whose body arrives */
    uint64_t remaining;       /* bytes of body, or to skip */
    const char *skip_reply;
    bs_put_options *put_options; /* of `with`, for the next put or the one whose body arrives; owned; NULL: none */
    uint8_t input;            /* bs_input */
    uint8_t lists;            /* bit per BS_LIST_ */
    bool waiting : 1;         /* in a reserve, or for a job */
    bool parked : 1;          /* Python has its command, or it is a multi-shard reserve or wait, or a long command */
    bool producer : 1;
    bool worker : 1;
    bool eof : 1;             /* the client sends no more; bytes may still be unread */
    bool drained : 1;         /* and all bytes are read */
    bool closing : 1;         /* quit or end of input: close when the output has left */
    bool broken : 1;          /* the connection failed or memory ran out: close now */
    bool readable : 1;        /* the socket may have more */
    bool wants_out : 1;       /* EPOLLOUT is armed */
    bool backlog : 1;         /* has used up its turn; commands are left in `in` */
    bool proxy : 1;           /* stands for a session of another worker, `peer` */
    bool stalled : 1;         /* the next command waits for other workers */
    bool claiming : 1;        /* it waits for a claim, not for a reply */
    bool claims_decided : 1;  /* the next command has waited for the pending claims (claims.h) */
    bool awaits_barrier : 1;  /* the next command waits for a barrier */
    bool barrier_global : 1;  /* `barrier_bytes` is of a global barrier */
    bool barrier_overdue : 1; /* and some workers did not answer in time */
    bool moved : 1;           /* its connection has migrated */
    bool mover : 1;           /* a proxy that holds jobs that move to another tube (job_lifetime.h) */
    bool from_mover : 1;      /* a proxy that stands for a mover */
    bool finding_job : 1;     /* Python looks for the worker that has the command's job */
    uint8_t peer;
    uint16_t batch;           /* most jobs of the reserve-batch that is executed; 0: a reserve of one */
    uint8_t verb;             /* bs_verb of the current command (latency.h) */
    int64_t since;            /* mono; parked: when the command was complete */
    uint64_t home;            /* of a proxy: the session it stands for */
    uint64_t put_id;          /* of a proxy: the id of the put that is executed */
    bs_remote *remote;        /* NULL until other workers have a part in it */
    bs_trace *trace;          /* NULL if it is not traced, and of a proxy */
    bs_session_link links[BS_LISTS];
};

extern const bs_heap_kind bs_session_kind;

static inline uint32_t bs_session_slot(const bs_session *session)
{
    return (uint32_t)session->id;
}

/* Appends a reply. Without memory the session is broken. */
void bs_session_reply(bs_session *session, const char *bytes, size_t length, bs_hold hold);

/* Returns the hold of the end of the output. */
static inline bs_hold bs_session_hold(const bs_session *session)
{
    const size_t length = bs_bytes_length(&session->out);
    return session->may_leave == length    ? BS_HOLD_NONE
           : session->after_sync == length ? BS_HOLD_SYNCING
                                           : BS_HOLD_WRITTEN;
}

/* The put has used its options, or was refused. */
void bs_session_drop_put_options(bs_session *session);

/* Removes bytes that have left. */
void bs_session_sent(bs_session *session, size_t length);

/* Sessions by id. All zeros is an empty table. */
typedef struct {
    bs_session **slots;
    uint32_t *free_slots;
    uint32_t free_count;
    uint32_t count; /* slots ever used */
    uint32_t capacity;
    uint32_t serial;
} bs_sessions;

/* Opens a session that uses and watches nothing; NULL without memory. */
bs_session *bs_sessions_open(bs_sessions *sessions);
bs_session *bs_sessions_find(const bs_sessions *sessions, uint64_t id);

/* Frees the session, whose tubes, jobs and trace are already released. */
void bs_sessions_close(bs_sessions *sessions, bs_session *session);
void bs_sessions_free(bs_sessions *sessions);

/* A list of sessions through one of their links. */
typedef struct {
    bs_session *first;
    bs_session *last;
    int which;
} bs_session_list;

void bs_session_list_add(bs_session_list *list, bs_session *session);
void bs_session_list_remove(bs_session_list *list, bs_session *session);

#endif
