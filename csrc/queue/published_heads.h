/* The best ready job (the head) of each tube that other workers watch, in shared memory.
 *
 * So a worker finds the shard that has the next job for a session without asking the others. Only the tube's worker
 * writes its slot, at the end of each round that changed the head, before frames and replies leave, because a client
 * may rely on the effect of a command once it has the reply. Readers check `sequence`, which is odd during a change (a
 * seqlock), and `key`, which is unique over the lives of all workers. A head is a hint: the tube's worker decides.
 * Tubes beyond BS_PUBLISHED_HEADS have no slot, and their worker is asked.
 */
#ifndef BS_PUBLISHED_HEADS_H
#define BS_PUBLISHED_HEADS_H

#include "queue/queue_state.h"

/* The head of a tube of this shard may have changed. */
static inline void bs_head_changed(bs_queue *queue, bs_tube *tube)
{
    if (!tube->head_slot || tube->head_changed)
        return;
    tube->head_changed = true;
    tube->next_changed = queue->first_head_changed;
    queue->first_head_changed = tube;
}

/* Assigns or frees the slot of a tube whose watchers at other workers have changed. */
void bs_head_watchers_changed(bs_queue *queue, bs_tube *tube);

/* Publishes all changes. */
void bs_heads_publish(bs_queue *queue);

/* Clears the slots of this shard, which a worker that has died may have left. */
void bs_heads_clear(bs_queue *queue);

/* Reads the head of a remote tube; false if it is not known. Its id is 0 if the tube has no job. */
bool bs_head_read(const bs_queue *queue, const bs_tube *tube, bs_published_head *head);

#endif
