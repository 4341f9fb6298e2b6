#include "links/outbox.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ring.h"

enum { SMALLEST = 8 };

static bs_message *at(const bs_outbox *outbox, uint32_t index)
{
    return &outbox->ring[bs_ring_at(outbox->head, index, outbox->capacity)];
}

/* --- messages --------------------------------------------------------------------------------------------- */

static void grow(bs_outbox *outbox)
{
    outbox->ring = bs_ring_must_grow(outbox->ring, &outbox->head, &outbox->capacity, SMALLEST, sizeof *outbox->ring);
}

static void push(bs_outbox *outbox, size_t length, int fd)
{
    if (outbox->count == outbox->capacity)
        grow(outbox);
    *at(outbox, outbox->count++) = (bs_message){(uint32_t)length, fd};
    outbox->complete += length;
    outbox->grows = 0;
}

static size_t growing(const bs_outbox *outbox)
{
    return bs_outbox_length(outbox) - outbox->complete;
}

/* Completes the growing message. */
static void complete(bs_outbox *outbox)
{
    while (growing(outbox) > BS_MESSAGE_BYTES)
        push(outbox, BS_MESSAGE_BYTES, -1);
    if (growing(outbox) > 0)
        push(outbox, growing(outbox), -1);
}

/* --- a session's bytes: space is reserved ------------------------------------------------------------ */

/* Extends the last frame, whose head may become longer. */
static void lengthen(bs_outbox *outbox, const char *bytes, size_t length)
{
    char head[BS_FRAME_HEAD_MAX];
    size_t before = bs_frame_write_head(head, outbox->kind, outbox->session, outbox->grows);
    size_t after = bs_frame_write_head(head, outbox->kind, outbox->session, outbox->grows + length);
    char *content = outbox->bytes.memory + outbox->bytes.end - outbox->grows;
    if (after > before)
        memmove(content + (after - before), content, outbox->grows);
    memcpy(content - before, head, after);
    memcpy(content + (after - before) + outbox->grows, bytes, length);
    bs_bytes_extend(&outbox->bytes, after - before + length);
    outbox->grows += length;
}

static void begin(bs_outbox *outbox, int kind, uint64_t session, const char *bytes, size_t length)
{
    if (growing(outbox) + BS_FRAME_HEAD_MAX + length > BS_MESSAGE_BYTES)
        complete(outbox);
    char *out = outbox->bytes.memory + outbox->bytes.end;
    size_t head = bs_frame_write_head(out, kind, session, length);
    memcpy(out + head, bytes, length);
    bs_bytes_extend(&outbox->bytes, head + length);
    outbox->kind = kind;
    outbox->session = session;
    outbox->grows = length;
}

static void add(bs_outbox *outbox, int kind, uint64_t session, const char *bytes, size_t length)
{
    while (length > 0) {
        size_t taken = length < BS_FRAME_BYTES_MAX ? length : BS_FRAME_BYTES_MAX;
        bool same = outbox->grows > 0 && outbox->kind == kind && outbox->session == session;
        if (same && outbox->grows + taken <= BS_FRAME_BYTES_MAX &&
            growing(outbox) + BS_FRAME_HEAD_MAX + taken <= BS_MESSAGE_BYTES)
            lengthen(outbox, bytes, taken);
        else
            begin(outbox, kind, session, bytes, taken);
        bytes += taken;
        length -= taken;
    }
}

int bs_outbox_add(bs_outbox *outbox, int kind, uint64_t session, const char *head, size_t head_length,
                  const char *bytes, size_t length)
{
    const size_t frames = head_length / BS_FRAME_BYTES_MAX + length / BS_FRAME_BYTES_MAX + 2;
    if (length > SIZE_MAX / 2 ||
        !bs_bytes_reserve(&outbox->bytes, head_length + length + frames * (size_t)BS_FRAME_HEAD_MAX))
        return -ENOMEM;
    add(outbox, kind, session, head, head_length);
    add(outbox, kind, session, bytes, length);
    return 0;
}

/* --- other frames ----------------------------------------------------------------------------------------- */

int bs_outbox_add_frame(bs_outbox *outbox, const char *frame, size_t length, int fd)
{
    int error = fd >= 0 && length > BS_MESSAGE_BYTES ? -EMSGSIZE : 0;
    if (fd >= 0 || growing(outbox) + length > BS_MESSAGE_BYTES)
        complete(outbox);
    if (!error)
        error = bs_bytes_append(&outbox->bytes, frame, length);
    if (error) {
        if (fd >= 0)
            (void)close(fd);
        return error;
    }
    outbox->grows = 0;
    if (fd >= 0)
        push(outbox, length, fd);
    else if (length > BS_MESSAGE_BYTES)
        complete(outbox); /* the next frame starts a new message */
    return 0;
}

static void must_add(bs_outbox *outbox, const char *frame, size_t length)
{
    if (bs_outbox_add_frame(outbox, frame, length, -1) != 0)
        abort();
}

void bs_outbox_add_end(bs_outbox *outbox, int kind, uint64_t session)
{
    char frame[BS_FRAME_HEAD_MAX];
    must_add(outbox, frame, bs_frame_write_end(frame, kind, session));
}

void bs_outbox_add_waited(bs_outbox *outbox, uint64_t session, uint64_t token, int how)
{
    char frame[BS_FRAME_WAITED_MAX];
    must_add(outbox, frame, bs_frame_write_waited(frame, session, token, how));
    outbox->has_waited = true;
}

void bs_outbox_add_count(bs_outbox *outbox, const char *name, size_t length, uint32_t users, uint32_t watchers,
                         uint32_t holds, uint64_t number)
{
    char frame[BS_FRAME_COUNT_MAX];
    must_add(outbox, frame, bs_frame_write_count(frame, name, length, users, watchers, holds, number));
}

void bs_outbox_add_census(bs_outbox *outbox, uint64_t adopted, uint64_t producers, uint64_t workers, uint64_t moves)
{
    char frame[BS_FRAME_CENSUS_MAX];
    must_add(outbox, frame, bs_frame_write_census(frame, adopted, producers, workers, moves));
}

/* --- out -------------------------------------------------------------------------------------------------- */

size_t bs_outbox_first(bs_outbox *outbox, const char **bytes, int *fd)
{
    if (outbox->count == 0)
        complete(outbox);
    if (outbox->count == 0)
        return 0;
    *bytes = bs_bytes_data(&outbox->bytes);
    *fd = at(outbox, 0)->fd;
    return at(outbox, 0)->length;
}

void bs_outbox_sent(bs_outbox *outbox)
{
    const bs_message *first = at(outbox, 0);
    if (first->fd >= 0)
        (void)close(first->fd);
    bs_bytes_take(&outbox->bytes, first->length);
    outbox->complete -= first->length;
    outbox->head++;
    outbox->count--;
}

void bs_outbox_free(bs_outbox *outbox)
{
    for (uint32_t i = 0; i < outbox->count; i++)
        if (at(outbox, i)->fd >= 0)
            (void)close(at(outbox, i)->fd);
    bs_bytes_free(&outbox->bytes);
    free(outbox->ring);
    *outbox = (bs_outbox){0};
}
