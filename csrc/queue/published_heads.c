#include "queue/published_heads.h"

static bs_published_head *slot_of(const bs_queue *queue, uint32_t shard, uint32_t slot)
{
    return &queue->shared->head[shard][slot - 1];
}

/* A worker that died here left an odd sequence. */
static void write_head(bs_published_head *slot, uint64_t key, const bs_job *best, bool undecided)
{
    const uint64_t odd = __atomic_load_n(&slot->sequence, __ATOMIC_RELAXED) | 1;
    __atomic_store_n(&slot->sequence, odd, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&slot->key, key, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->id, best ? best->id : 0, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->pri, best ? best->pri : 0, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->undecided, undecided, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->sequence, odd + 1, __ATOMIC_RELEASE);
}

static void assign_slot(bs_queue *queue, bs_tube *tube)
{
    if (queue->free_head_count > 0)
        tube->head_slot = queue->free_head_slots[--queue->free_head_count];
    else if (queue->used_head_slots < BS_PUBLISHED_HEADS)
        tube->head_slot = ++queue->used_head_slots;
    else
        return;
    tube->head_key = __atomic_add_fetch(&queue->shared->last_tube, 1, __ATOMIC_RELAXED);
    bs_head_changed(queue, tube);
}

static void free_slot(bs_queue *queue, bs_tube *tube)
{
    write_head(slot_of(queue, queue->shard, tube->head_slot), 0, NULL, false);
    queue->free_head_slots[queue->free_head_count++] = (uint16_t)tube->head_slot;
    tube->head_slot = 0;
    bs_tube **link = &queue->first_head_changed;
    while (tube->head_changed && *link != tube)
        link = &(*link)->next_changed;
    if (tube->head_changed)
        *link = tube->next_changed;
    tube->head_changed = false;
}

void bs_head_watchers_changed(bs_queue *queue, bs_tube *tube)
{
    bool watched = false;
    for (uint8_t i = 0; i < tube->peer_ref_count; i++)
        watched = watched || tube->peer_refs[i].watchers > 0;
    if (watched && !tube->head_slot)
        assign_slot(queue, tube);
    else if (!watched && tube->head_slot)
        free_slot(queue, tube);
}

void bs_heads_publish(bs_queue *queue)
{
    for (bs_tube *tube; (tube = queue->first_head_changed);) {
        queue->first_head_changed = tube->next_changed;
        tube->head_changed = false;
        const bs_job *best = bs_tube_is_open(tube) ? bs_ready_first(&tube->ready) : NULL;
        write_head(slot_of(queue, queue->shard, tube->head_slot), tube->head_key, best, tube->pending_claims > 0);
    }
}

void bs_heads_clear(bs_queue *queue)
{
    for (uint32_t slot = 1; slot <= BS_PUBLISHED_HEADS; slot++)
        if (__atomic_load_n(&slot_of(queue, queue->shard, slot)->key, __ATOMIC_RELAXED))
            write_head(slot_of(queue, queue->shard, slot), 0, NULL, false);
}

bool bs_head_read(const bs_queue *queue, const bs_tube *tube, bs_published_head *head)
{
    enum { TRIES = 16 }; /* a write takes less time than one try, unless its worker is interrupted or dies */
    if (!tube->head_slot)
        return false;
    const bs_published_head *slot = slot_of(queue, tube->shard, tube->head_slot);
    for (int i = 0; i < TRIES; i++) {
        head->sequence = __atomic_load_n(&slot->sequence, __ATOMIC_ACQUIRE);
        head->key = __atomic_load_n(&slot->key, __ATOMIC_RELAXED);
        head->id = __atomic_load_n(&slot->id, __ATOMIC_RELAXED);
        head->pri = __atomic_load_n(&slot->pri, __ATOMIC_RELAXED);
        head->undecided = __atomic_load_n(&slot->undecided, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (head->sequence % 2 == 0 && __atomic_load_n(&slot->sequence, __ATOMIC_RELAXED) == head->sequence)
            return head->key == tube->head_key && !head->undecided;
    }
    return false;
}
