/* A session: one client's view of the server, and the table of all of them.
 *
 * It has what the queue needs to know of a client (used tube, watch list, reserved jobs, whether it waits), its input
 * that is not yet executed, and its output that has not left. A local session has a socket; without one the same
 * bytes go in and out by api/server.h.
 *
 * Output is in three parts, in order: what may leave; what leaves when the sync that is under way ends; what needs
 * the sync after that. A reply says how long it must wait (BS_HOLD_), and never overtakes an earlier one.
 */
#ifndef BS_SESSION_H
#define BS_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/heap.h"
#include "binlog/hold.h"
#include "jobs/job.h"
#include "jobs/tube.h"

typedef struct bs_session bs_session;
typedef struct bs_remote bs_remote;
typedef struct bs_trace bs_trace;

/* One watched tube of one session; in the tube's list of waiters while the session waits. */
struct bs_watch {
    bs_session *session;
    bs_tube *tube;
    bs_watch *previous;
    bs_watch *next;
};

/* What the next input bytes are. */
typedef enum {
    BS_INPUT_LINE,      /* a command */
    BS_INPUT_LONG_LINE, /* a command line over the limit, up to its CR LF */
    BS_INPUT_BODY,      /* the body of `incoming` */
    BS_INPUT_SKIP       /* a body that nobody wants; then `skip_reply` */
} bs_input;

typedef struct bs_session_link {
    bs_session *previous;
    bs_session *next;
} bs_session_link;

/* The lists of bs_core that a session can be in, each at most once. */
enum {
    BS_LIST_DIRTY,    /* has output that may leave, or is to be closed */
    BS_LIST_HELD,     /* has output that waits for a sync */
    BS_LIST_RUNNABLE, /* has input to go on with */
    BS_LIST_MORE_INPUT,    /* its socket may have more; looked at in the next round */
    BS_LISTS
};

struct bs_session {
    uint64_t id; /* its slot in the low half, a serial number in the high half; never 0 */
    bs_tube *use;
    bs_watch *watches; /* in the order of watching; moves only while the session does not wait */
    uint32_t watch_count;
    uint32_t watch_capacity;
    bs_heap reserved;      /* jobs by deadline */
    uint64_t *reserved_ids;      /* ids of jobs in the order of reserving; those given back meanwhile are left in for a while */
    uint32_t reserved_id_count;
    uint32_t reserved_id_capacity;
    int64_t reserve_until; /* waiting: when to give up, INT64_MAX: never */
    uint32_t place;        /* in the heap of sessions by time */
    uint32_t timeout_place;     /* and in that of client_timeouts.h */
    int64_t received_at;         /* mono; its last bytes came */
    int64_t sent_at;          /* mono; it took bytes, or was found not to take them */
    int64_t not_idle_at;       /* mono; its silence was found to be right */
    int fd;                /* -1: none */

    bs_bytes in;         /* received, not executed */
    bs_bytes out;
    size_t may_leave;    /* bytes of `out` that wait for nothing */
    size_t barrier_bytes;      /* bytes of `in` that came before the last barrier: their commands need no other one */
    size_t after_sync;   /* and these after the sync under way; the rest after the next one */
    bs_job *incoming;    /* the put whose body arrives */
    uint64_t remaining;  /* bytes of body, or to skip */
    const char *skip_reply;
    uint8_t input;       /* bs_input */
    uint8_t lists;       /* bit per BS_LIST_ */
    bool waiting : 1;    /* in a reserve */
    bool parked : 1;     /* Python owes a reply */
    bool producer : 1;
    bool worker : 1;
    bool eof : 1;        /* the client sends no more; bytes may still be unread */
    bool drained : 1;    /* and all of them are read */
    bool closing : 1;       /* quit, or all input is executed: close when the output has left */
    bool broken : 1;     /* the connection or its memory failed: close now */
    bool readable : 1;   /* the socket may have more */
    bool wants_out : 1;  /* EPOLLOUT is armed */
    bool backlog : 1;    /* had enough for this round; commands are left in `in` */
    bool proxy : 1;      /* stands for a session of another worker, `peer` */
    bool stalled : 1;    /* the next command has to wait until other workers have answered, or take more */
    bool claiming : 1;   /* the wait is for claims.h, not for a reply */
    bool claims_decided : 1;/* the next command has waited for the claims there were (pending_claims.h) */
    bool awaits_claims : 1;   /* Python waits for BS_UPCALL_CLAIMS_DECIDED */
    bool awaits_barrier : 1;   /* the next command waits for a barrier (barrier.h) */
    bool barrier_global : 1; /* `settled` is of a far one */
    bool barrier_overdue : 1;    /* and not all workers had answered in time */
    bool moved : 1;      /* its connection goes on at another worker */
    bool searching : 1;  /* its command is asked of one worker after the other, and Python reads what they say */
    uint8_t peer;
    uint8_t verb;        /* bs_verb of the command that is being executed or answered (latency.h) */
    int64_t since;       /* mono; parked: when that command was complete */
    uint64_t home;       /* a proxy's: the number of the session it stands for */
    uint64_t put_id;     /* a proxy's: the id of the put that is being executed */
    bs_remote *remote;     /* NULL while it needs no other worker and is a proxy of none */
    bs_trace *trace;     /* NULL while nothing of it is to be logged, and of a proxy */
    bs_session_link links[BS_LISTS];
};

extern const bs_heap_kind bs_session_kind;

static inline uint32_t bs_session_slot(const bs_session *session)
{
    return (uint32_t)session->id;
}

/* Adds a reply. Memory running out breaks the session, nothing else. */
void bs_session_reply(bs_session *session, const char *bytes, size_t length, bs_hold hold);

/* Bytes handed to the client. */
void bs_session_took(bs_session *session, size_t length);

/* The next sync has started, or the one under way has ended. */
void bs_session_sync_started(bs_session *session);
void bs_session_sync_ended(bs_session *session);

/* Sessions by id. All zeros is an empty table. */
typedef struct {
    bs_session **slots;
    uint32_t *free_slots;
    uint32_t free_count;
    uint32_t count; /* slots ever used */
    uint32_t capacity;
    uint32_t serial;
} bs_sessions;

/* A session that uses and watches nothing yet; NULL when memory ran out. */
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
