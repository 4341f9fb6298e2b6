#include "store/queues.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 64 };

hs_queues *hs_queues_new(void)
{
    hs_queues *queues = calloc(1, sizeof *queues);
    if (!queues)
        return NULL;
    queues->latest = -1;
    queues->mark = 1;
    return queues;
}

void hs_queues_free(hs_queues *queues)
{
    if (!queues)
        return;
    for (uint32_t number = 0; number < queues->count; number++)
        free(queues->all[number].topic);
    free(queues->all);
    free(queues->slots);
    free(queues);
}

static uint64_t hash_of(const char *topic, size_t length, int32_t queue_id)
{
    uint64_t hash = 0x9E3779B97F4A7C15U ^ (uint32_t)queue_id;
    while (length > 0) {
        uint64_t word = 0;
        size_t taken = length < sizeof word ? length : sizeof word;
        memcpy(&word, topic, taken);
        hash = (hash ^ word ^ taken) * 0xFF51AFD7ED558CCDU;
        hash ^= hash >> 32;
        topic += taken;
        length -= taken;
    }
    return hash;
}

static bool is_queue(const hs_queue *queue, const char *topic, size_t length, int32_t queue_id)
{
    return queue->queue_id == queue_id && queue->topic_length == length && memcmp(queue->topic, topic, length) == 0;
}

static void enter(int32_t *slots, uint32_t slot_count, const hs_queue *queue, uint32_t number)
{
    uint64_t at = hash_of(queue->topic, queue->topic_length, queue->queue_id);
    while (slots[at & (slot_count - 1)] != 0)
        at++;
    slots[at & (slot_count - 1)] = (int32_t)number + 1;
}

static int grow(hs_queues *queues)
{
    uint32_t capacity = queues->capacity ? queues->capacity * 2 : FIRST_CAPACITY;
    if (capacity > INT32_MAX / 4)
        return -ENOMEM;
    hs_queue *all = realloc(queues->all, capacity * sizeof *all);
    if (!all)
        return -ENOMEM;
    queues->all = all;
    int32_t *slots = calloc(capacity * 2, sizeof *slots);
    if (!slots)
        return -ENOMEM;
    for (uint32_t number = 0; number < queues->count; number++)
        enter(slots, capacity * 2, &all[number], number);
    free(queues->slots);
    queues->slots = slots;
    queues->slot_count = capacity * 2;
    queues->capacity = capacity;
    return 0;
}

static int32_t add(hs_queues *queues, const char *topic, size_t topic_length, int32_t queue_id, int64_t next)
{
    if (queues->count == queues->capacity) {
        int error = grow(queues);
        if (error)
            return error;
    }
    char *copy = malloc(topic_length ? topic_length : 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, topic, topic_length);
    uint32_t number = queues->count++;
    queues->all[number] = (hs_queue){
        .topic = copy, .topic_length = (uint32_t)topic_length, .queue_id = queue_id, .next = next};
    enter(queues->slots, queues->slot_count, &queues->all[number], number);
    queues->latest = (int32_t)number;
    return (int32_t)number;
}

int32_t hs_queues_get(hs_queues *queues, const char *topic, size_t topic_length, int32_t queue_id, int64_t next)
{
    if (queues->latest >= 0 && is_queue(&queues->all[queues->latest], topic, topic_length, queue_id))
        return queues->latest;
    uint64_t at = hash_of(topic, topic_length, queue_id);
    for (; queues->slot_count > 0 && queues->slots[at & (queues->slot_count - 1)] != 0; at++) {
        int32_t number = queues->slots[at & (queues->slot_count - 1)] - 1;
        if (is_queue(&queues->all[number], topic, topic_length, queue_id))
            return queues->latest = number;
    }
    return add(queues, topic, topic_length, queue_id, next);
}

int32_t hs_queues_set(hs_queues *queues, const char *topic, size_t topic_length, int32_t queue_id, int64_t next)
{
    int32_t number = hs_queues_get(queues, topic, topic_length, queue_id, next);
    if (number >= 0)
        queues->all[number].next = next;
    return number;
}

void hs_queues_name(const hs_queues *queues, int32_t number, hs_queue_name *name)
{
    const hs_queue *queue = &queues->all[number];
    *name = (hs_queue_name){queue->topic, queue->topic_length, queue->queue_id};
}

int64_t hs_queues_take(hs_queues *queues, int32_t number)
{
    hs_queue *queue = &queues->all[number];
    if (queue->touched != queues->mark) {
        queue->touched = queues->mark;
        queue->marked = queue->next;
    }
    return queue->next++;
}

void hs_queues_mark(hs_queues *queues)
{
    queues->mark++;
}

void hs_queues_undo(hs_queues *queues)
{
    for (uint32_t number = 0; number < queues->count; number++) {
        hs_queue *queue = &queues->all[number];
        if (queue->touched == queues->mark)
            queue->next = queue->marked;
    }
    queues->mark++;
}
