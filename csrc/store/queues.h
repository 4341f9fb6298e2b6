/* The queues by topic and queue id, each with its next queue offset. */
#ifndef HS_QUEUES_H
#define HS_QUEUES_H

#include <stdint.h>

#include "store/store.h"

typedef struct {
    char *topic; /* owned */
    uint32_t topic_length;
    int32_t queue_id;
    int64_t next;
    int64_t marked; /* `next` at the last mark, if `touched` is that mark */
    uint64_t touched;
    int32_t run_count;  /* dispatch: 0 between calls */
    int32_t run_number; /* dispatch: index of the run */
} hs_queue;

struct hs_queues {
    hs_queue *all;
    int32_t *slots; /* number + 1, 0 is empty; a power of two of them */
    uint32_t count;
    uint32_t capacity;
    uint32_t slot_count;
    int32_t latest; /* number of the last lookup, -1: none */
    uint64_t mark;
};

/* Returns the queue's number; adds it with this next queue offset if it is new. -ENOMEM. */
int32_t hs_queues_get(hs_queues *queues, const char *topic, size_t topic_length, int32_t queue_id, int64_t next);

/* Assigns the next queue offset of a queue. */
int64_t hs_queues_take(hs_queues *queues, int32_t number);

#endif
