/* How a job enters the queue and leaves it. */
#ifndef BS_JOB_LIFETIME_H
#define BS_JOB_LIFETIME_H

#include "base/clock.h"
#include "queue/queue_state.h"

/* Creates a job for a tube, not yet in the queue, with zeroed attributes or without. NULL without memory. */
bs_job *bs_queue_new_job(bs_queue *queue, bs_tube *tube, uint64_t id, uint32_t body_size, bool attributes);
void bs_queue_drop_job(bs_queue *queue, bs_job *job);

/* Inserts a job whose `created_at` is set, and whose key, if it has one, has no holder. 0, -ENOSPC or -ENOMEM; the queue
 * owns the job only after 0. */
int bs_queue_insert(bs_queue *queue, bs_job *job, bs_now now);

/* Deletes a job in any state; `ended` is of entry.h. 0 or -ENOSPC. */
int bs_queue_remove(bs_queue *queue, bs_job *job, uint32_t ended, bs_now now);

/* Where a moved job goes. */
typedef struct {
    bs_tube *tube;
    uint32_t pri;
    uint32_t delay; /* seconds */
    uint32_t ended; /* BS_ENDED_MOVED, or BS_ENDED_DEAD_LETTERED */
    uint64_t session; /* that waits for the end; 0: none */
} bs_job_target;

enum { BS_MOVE_NOT_REMOVED = 1 /* the copy is there, and the job still is */, BS_MOVE_WAITS };

/* How long a moving job is held at most, until it times out like a reserved one. */
#define BS_MOVE_NS (3600 * BS_SECOND)

/* Moves a job, whose body is in memory, to a tube of this shard, as another job. The job loses its key and its other
 * attributes.
 *
 * The copy is written first, and the job's end only when the copy is on disk, because a power cut may keep any part of
 * what was written since the last sync. Until then a session of the queue, the mover, holds the job. So a crash leaves
 * the job, the copy or both.
 *
 * BS_MOVE_WAITS, or 0 if nothing is synced, and the id of the copy; -ENOSPC or -ENOMEM: nothing has changed, and an
 * unused tube is freed; or BS_MOVE_NOT_REMOVED. */
int bs_queue_move(bs_queue *queue, bs_job *job, bs_job_target to, uint64_t *id, bs_now now);

/* The end of a move that waited. */
typedef struct {
    uint64_t session; /* of bs_job_target */
    uint64_t copy;
    bool failed;
} bs_ended_move;

bool bs_queue_move_due(const bs_queue *queue);

/* Ends the next move whose copy is on disk; false without one. */
bool bs_queue_end_next_move(bs_queue *queue, bs_ended_move *ended, bs_now now);

void bs_queue_free_moves(bs_queue *queue);

/* Two parts of it. The copy is not yet in the queue; NULL without memory. 0 or BS_MOVE_NOT_REMOVED. */
bs_job *bs_queue_copy_job(bs_queue *queue, const bs_job *job, const bs_job_target *to);
int bs_queue_end_moved(bs_queue *queue, bs_job *job, uint32_t ended, bs_now now);

/* The job has no key any more, and will have none when it ends. */
void bs_queue_free_key(bs_queue *queue, const bs_job *job);

/* Adds the record of an ended key, which replaces an earlier one. */
bs_ended_key *bs_queue_add_ended_key(bs_queue *queue, const uint8_t key[BS_KEY_BYTES], uint64_t job, uint32_t until);

/* Removes the record of an ended key. */
void bs_queue_remove_ended_key(bs_queue *queue, bs_ended_key *ended);

/* Removes some ended keys whose time is over, and sets `keys_at`. */
void bs_queue_expire_keys(bs_queue *queue, bs_now now);

#endif
