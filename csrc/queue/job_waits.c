#include "queue/job_waits.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum { SMALLEST = 16 };

/* One session that waits. */
struct bs_job_waiter {
    bs_session *session;
    bs_job_wait *wait;
    bs_job_waiter *previous;
    bs_job_waiter *next;
};

/* The sessions that wait for one job. */
struct bs_job_wait {
    uint64_t job;
    uint64_t generation; /* the answers depend on it */
    bs_job_waiter *first;
    bs_job_waiter *last;
    bs_job_wait *next;   /* in its bucket, or of those that have ended */
    bool in_table;
    bool ended;
    uint8_t how;         /* bs_served */
};

static bs_job_wait **bucket(const bs_job_waits *waits, uint64_t job)
{
    return &waits->buckets[(job * UINT64_C(0x9E3779B97F4A7C15)) >> 32 & (waits->capacity - 1)];
}

static bs_job_wait *find(const bs_job_waits *waits, uint64_t job)
{
    bs_job_wait *wait = waits->count ? *bucket(waits, job) : NULL;
    while (wait && wait->job != job)
        wait = wait->next;
    return wait;
}

static bool grow(bs_job_waits *waits)
{
    bs_job_waits grown = *waits;
    grown.capacity = waits->capacity ? waits->capacity * 2 : SMALLEST;
    grown.buckets = calloc(grown.capacity, sizeof(bs_job_wait *));
    if (!grown.buckets)
        return false;
    for (size_t i = 0; i < waits->capacity; i++) {
        for (bs_job_wait *wait = waits->buckets[i], *next; wait; wait = next) {
            next = wait->next;
            wait->next = *bucket(&grown, wait->job);
            *bucket(&grown, wait->job) = wait;
        }
    }
    free(waits->buckets);
    *waits = grown;
    return true;
}

static bool add(bs_job_waits *waits, bs_job_wait *wait)
{
    if (waits->count == waits->capacity && !grow(waits))
        return false;
    wait->next = *bucket(waits, wait->job);
    *bucket(waits, wait->job) = wait;
    wait->in_table = true;
    waits->count++;
    return true;
}

/* Frees the memory of a table that becomes empty. */
static void take_from_table(bs_job_waits *waits, bs_job_wait *wait)
{
    bs_job_wait **at = bucket(waits, wait->job);
    while (*at != wait)
        at = &(*at)->next;
    *at = wait->next;
    wait->in_table = false;
    if (--waits->count > 0)
        return;
    free(waits->buckets);
    waits->buckets = NULL;
    waits->capacity = 0;
}

static bs_job_wait *wait_for(bs_job_waits *waits, uint64_t job, bool shared)
{
    bs_job_wait *wait = shared ? find(waits, job) : NULL;
    if (wait)
        return wait;
    wait = calloc(1, sizeof *wait);
    if (!wait)
        return NULL;
    wait->job = job;
    if (!shared || add(waits, wait))
        return wait;
    free(wait);
    return NULL;
}

int bs_job_wait_add(bs_queue *queue, bs_session *session, uint64_t job, bool shared)
{
    assert(!session->waiter);
    bs_job_waiter *waiter = calloc(1, sizeof *waiter);
    bs_job_wait *wait = waiter ? wait_for(&queue->job_waits, job, shared) : NULL;
    if (!wait) {
        free(waiter);
        return -ENOMEM;
    }
    *waiter = (bs_job_waiter){.session = session, .wait = wait, .previous = wait->last};
    *(wait->last ? &wait->last->next : &wait->first) = waiter;
    wait->last = waiter;
    session->waiter = waiter;
    return 0;
}

bool bs_job_wait_has_ended(const bs_session *session)
{
    return session->waiter && session->waiter->wait->ended;
}

uint64_t bs_job_wait_id(const bs_session *session)
{
    return session->waiter->wait->job;
}

void bs_job_wait_remove(bs_queue *queue, bs_session *session)
{
    bs_job_waiter *waiter = session->waiter;
    bs_job_wait *wait = waiter->wait;
    *(waiter->previous ? &waiter->previous->next : &wait->first) = waiter->next;
    *(waiter->next ? &waiter->next->previous : &wait->last) = waiter->previous;
    session->waiter = NULL;
    free(waiter);
    if (wait->first || wait->ended)
        return; /* bs_job_waits_answer frees one that has ended */
    if (wait->in_table)
        take_from_table(&queue->job_waits, wait);
    free(wait);
}

static void end(bs_job_waits *waits, bs_job_wait *wait, bs_served how, uint64_t generation)
{
    if (wait->in_table)
        take_from_table(waits, wait);
    wait->next = NULL;
    wait->ended = true;
    wait->how = (uint8_t)how;
    wait->generation = generation;
    *(waits->last_ended ? &waits->last_ended->next : &waits->first_ended) = wait;
    waits->last_ended = wait;
}

void bs_job_wait_end(bs_queue *queue, const bs_session *session, bs_served how, uint64_t generation)
{
    assert(!session->waiter->wait->in_table);
    if (!session->waiter->wait->ended)
        end(&queue->job_waits, session->waiter->wait, how, generation);
}

void bs_job_waits_end_all(bs_queue *queue, uint64_t job, bs_served how)
{
    bs_job_wait *wait = find(&queue->job_waits, job);
    if (wait)
        end(&queue->job_waits, wait, how, bs_binlog_generation(queue->binlog));
}

static void free_first_ended(bs_job_waits *waits)
{
    bs_job_wait *wait = waits->first_ended;
    waits->first_ended = wait->next;
    if (!wait->next)
        waits->last_ended = NULL;
    free(wait);
}

bool bs_job_waits_due(const bs_queue *queue)
{
    const bs_job_wait *first = queue->job_waits.first_ended;
    return first && bs_binlog_hold_generation(queue->binlog, first->generation) == BS_HOLD_NONE;
}

uint32_t bs_job_waits_answer(bs_queue *queue, uint32_t most, bs_now now)
{
    uint32_t answered = 0;
    while (answered < most && bs_job_waits_due(queue)) {
        bs_job_wait *wait = queue->job_waits.first_ended;
        if (!wait->first) {
            free_first_ended(&queue->job_waits);
            continue;
        }
        bs_session *session = wait->first->session;
        queue->served(queue->context, session, (bs_served)wait->how, NULL, now);
        answered++;
    }
    while (queue->job_waits.first_ended && !queue->job_waits.first_ended->first)
        free_first_ended(&queue->job_waits);
    return answered;
}

void bs_job_waits_free(bs_queue *queue)
{
    const bs_sessions *sessions = &queue->sessions;
    for (uint32_t i = 0; i < sessions->count; i++)
        if (sessions->slots[i] && sessions->slots[i]->waiter)
            bs_job_wait_remove(queue, sessions->slots[i]);
    while (queue->job_waits.first_ended)
        free_first_ended(&queue->job_waits);
}
