/* The state that a traced session has: trace.h and slow_log.h work on it. */
#ifndef BS_TRACE_STATE_H
#define BS_TRACE_STATE_H

#include "server/server_state.h"

/* A command without its reply, or the first of a batch. */
typedef struct {
    int64_t at;     /* mono */
    uint64_t job;   /* 0: none */
    char *tube;     /* owned; NULL: none */
    uint32_t count; /* of the batch */
    uint8_t verb;   /* bs_verb, or BS_VERBS: no command */
    uint8_t cause;  /* BS_SLOW_ */
    uint8_t shard;  /* of BS_SLOW_WORKER */
    bool waits;     /* for a job, or for Python that looks for one */
} bs_slow_record;

enum { BS_SLOW_FREE, BS_SLOW_SYNCING, BS_SLOW_WRITTEN, BS_SLOW_BATCHES };

/* All zeros is one without commands, for a session without any. */
typedef struct {
    bool answered;         /* the command that is being executed */
    int64_t since;         /* mono: the next command has been waiting to be executed; 0: it has not */
    uint32_t count;        /* of records */
    uint32_t unrecorded;   /* commands without a reply behind those in the ring */
    bs_slow_record batches[BS_SLOW_BATCHES]; /* as the parts of the session's output */
    bs_slow_record *ring;
    uint32_t head;
    uint32_t capacity;     /* a power of two, or 0 */
} bs_slow;

struct bs_trace {
    uint64_t connection; /* unique over all workers, and the same after a move */
    int64_t opened;      /* mono */
    uint64_t commands;
    bool logged;           /* the command that could not be executed yet is known already */
    char address[BS_ADDRESS_MAX]; /* an address as text; empty without a socket */
    bs_slow slow;
};

#endif
