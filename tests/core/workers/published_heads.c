/* One thread publishes heads whose priority is the id's low half; two others check what they read. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "queue/published_heads.h"

enum { WRITES = 200000, READERS = 2 };

static bs_job best;
static int written;

bs_job *bs_ready_first(const bs_ready *ready)
{
    (void)ready;
    return best.id ? &best : NULL;
}

static void *write_heads(void *context)
{
    bs_queue *queue = context;
    bs_tube *tube = queue->tubes.first;
    for (uint64_t i = 1; i <= WRITES; i++) {
        best.id = i << 32 | i;
        best.pri = (uint32_t)i;
        bs_head_changed(queue, tube);
        bs_heads_publish(queue);
    }
    __atomic_store_n(&written, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void *read_heads(void *context)
{
    const bs_queue *queue = context;
    bs_tube remote = *queue->tubes.last;
    uint64_t last = 0;
    uint64_t known = 0;
    while (!__atomic_load_n(&written, __ATOMIC_ACQUIRE) || known == 0) {
        bs_published_head head;
        if (!bs_head_read(queue, &remote, &head))
            continue;
        known++;
        if (head.id >> 32 != head.pri || (uint32_t)head.id != head.pri || head.id < last)
            abort();
        last = head.id;
    }
    return NULL;
}

int main(void)
{
    static bs_shared shared;
    static bs_queue queue;
    bs_tube *tube = calloc(1, sizeof *tube + 1);
    bs_tube *remote = calloc(1, sizeof *remote + 1);
    bs_peer_refs refs = {.watchers = 1, .peer = 1};
    if (!tube || !remote)
        return 1;
    tube->peer_refs = &refs;
    tube->peer_ref_count = 1;
    queue.shared = &shared;
    queue.tubes.first = tube;
    bs_head_watchers_changed(&queue, tube);
    bs_heads_publish(&queue);
    remote->remote = true;
    remote->head_slot = tube->head_slot;
    remote->head_key = tube->head_key;
    queue.tubes.last = remote;
    pthread_t threads[READERS + 1];
    for (int i = 0; i <= READERS; i++)
        if (pthread_create(&threads[i], NULL, i ? read_heads : write_heads, &queue) != 0)
            return 1;
    for (int i = 0; i <= READERS; i++)
        (void)pthread_join(threads[i], NULL);
    free(tube);
    free(remote);
    return 0;
}
