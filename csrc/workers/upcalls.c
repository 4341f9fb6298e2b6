#include "workers/upcalls.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/ring.h"

enum { SMALLEST = 64 };

static bs_letter *at(const bs_mails *mails, uint32_t index)
{
    return &mails->ring[bs_ring_at(mails->head, index, mails->capacity)];
}

static void grow(bs_mails *mails)
{
    mails->ring = bs_ring_must_grow(mails->ring, &mails->head, &mails->capacity, SMALLEST, sizeof *mails->ring);
}

bs_letter *bs_mails_add(bs_mails *mails, int kind, uint32_t shard, uint64_t session)
{
    if (mails->count == mails->capacity)
        grow(mails);
    bs_letter *letter = at(mails, mails->count++);
    *letter = (bs_letter){.mail = {.kind = kind, .shard = shard, .session = session, .fd = -1}};
    return letter;
}

int bs_mails_take(bs_mails *mails, bs_mail *mail)
{
    bs_bytes_free(&mails->taken.bytes);
    if (mails->count == 0)
        return 0;
    mails->taken = *at(mails, 0);
    mails->head++;
    mails->count--;
    *mail = mails->taken.mail;
    mail->bytes = bs_bytes_data(&mails->taken.bytes);
    mail->length = bs_bytes_length(&mails->taken.bytes);
    return 1;
}

void bs_mails_free(bs_mails *mails)
{
    bs_mail mail;
    while (bs_mails_take(mails, &mail))
        if (mail.fd >= 0)
            (void)close(mail.fd);
    free(mails->ring);
    *mails = (bs_mails){0};
}
