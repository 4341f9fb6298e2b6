/* What the core wants answered by Python with the help of other workers, and what those have sent to Python, in order.
 *
 * Whoever adds a mail cannot wait, so the queue has no bound of its own; it is kept short by those who add: a session
 * is parked while Python has a command of its, and a worker is read so far and no further in one round (worker_links.h).
 */
#ifndef BS_MAILS_H
#define BS_MAILS_H

#include "base/bytes.h"
#include "api/core.h"

typedef struct {
    bs_mail mail; /* without bytes */
    bs_bytes bytes;
} bs_letter;

/* All zeros is an empty queue. It owns the descriptors in it. */
typedef struct {
    bs_letter *ring;
    uint32_t head;
    uint32_t count;
    uint32_t capacity; /* a power of two, or 0 */
    bs_letter taken;   /* the last one given out: its bytes are still in use */
} bs_mails;

/* Adds a mail without bytes. */
bs_letter *bs_mails_add(bs_mails *mails, int kind, uint32_t shard, uint64_t session);

/* 1, or 0 when there is none. The bytes are good until the next call; a descriptor is the caller's. */
int bs_mails_take(bs_mails *mails, bs_mail *mail);
void bs_mails_free(bs_mails *mails);

#endif
