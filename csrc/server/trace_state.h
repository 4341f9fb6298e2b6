/* The state of a traced session, for trace.h and slow_log.h. */
#ifndef BS_TRACE_STATE_H
#define BS_TRACE_STATE_H

#include "server/server_state.h"

/* A command without its reply, or the first command of a batch. */
typedef struct {
    int64_t at;     /* mono */
    uint64_t job;   /* 0: none */
    char *tube;     /* owned; NULL: none */
    uint32_t count; /* of the batch */
    uint8_t verb;   /* bs_verb, or BS_VERBS: no command */
    uint8_t cause;  /* BS_SLOW_ */
    uint8_t shard;  /* of BS_SLOW_WORKER */
    bool waits;     /* for a job, or for Python */
} bs_slow_record;

enum { BS_SLOW_FREE, BS_SLOW_SYNCING, BS_SLOW_WRITTEN, BS_SLOW_BATCHES };

/* All zeros is valid for a session without outstanding commands. */
typedef struct {
    bool answered;                           /* the current command has its reply */
    int64_t since;                           /* mono: the next command is stalled since then; 0: it is not */
    uint32_t count;                          /* of records */
    uint32_t unrecorded;                     /* outstanding commands after those in the ring */
    bs_slow_record batches[BS_SLOW_BATCHES]; /* by the parts of the session's output */
    bs_slow_record *ring;
    uint32_t head;
    uint32_t capacity;                       /* a power of two, or 0 */
} bs_slow;

struct bs_trace {
    uint64_t connection;          /* unique over all workers, unchanged by a migration */
    int64_t opened;               /* mono */
    uint64_t commands;
    bool logged;                  /* the stalled command is already logged */
    char address[BS_ADDRESS_MAX]; /* empty without a socket */
    bs_slow slow;
};

#endif
