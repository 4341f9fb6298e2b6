/* What the core wants sent to other workers, or answered by Python with their help, in order.
 *
 * Whoever adds a mail cannot wait, so the queue has no bound of its own; it is kept short by those who add: a session
 * asks for so much at a time (route.h), and while a peer is busy nothing is added for it.
 */
#ifndef BS_MAILS_H
#define BS_MAILS_H

#include "bytes.h"
#include "core.h"

typedef struct {
    bs_mail mail; /* without bytes */
    bs_bytes bytes;
} bs_letter;

/* All zeros is an empty queue. */
typedef struct {
    bs_letter *ring;
    uint32_t head;
    uint32_t count;
    uint32_t capacity; /* a power of two, or 0 */
    bs_letter taken;   /* the last one given out: its bytes are still in use */
} bs_mails;

/* Adds a mail without bytes. */
bs_letter *bs_mails_add(bs_mails *mails, int kind, uint32_t shard, uint64_t session);

/* The last one if it is this kind for this session and shard, else a new one: consecutive commands travel together. */
bs_letter *bs_mails_continue(bs_mails *mails, int kind, uint32_t shard, uint64_t session);

/* 1, or 0 when there is none. The bytes are good until the next call. */
int bs_mails_take(bs_mails *mails, bs_mail *mail);
void bs_mails_free(bs_mails *mails);

#endif
