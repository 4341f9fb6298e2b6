#include "links/outbox.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_io.h"
#include "base/ring.h"

enum { SMALLEST = 8 };

static bs_message *at(const bs_outbox *outbox, uint32_t index)
{
    return &outbox->ring[bs_ring_at(outbox->head, index, outbox->capacity)];
}

static void push(bs_outbox *outbox, size_t length, int fd)
{
    if (outbox->count == outbox->capacity)
        outbox->ring =
            bs_ring_must_grow(outbox->ring, &outbox->head, &outbox->capacity, SMALLEST, sizeof *outbox->ring);
    *at(outbox, outbox->count++) = (bs_message){(uint32_t)length, fd};
    outbox->complete_bytes += length;
    outbox->last.length = 0;
}

static size_t growing_bytes(const bs_outbox *outbox)
{
    return bs_outbox_length(outbox) - outbox->complete_bytes;
}

static void complete(bs_outbox *outbox)
{
    while (growing_bytes(outbox) > BS_MESSAGE_BYTES)
        push(outbox, BS_MESSAGE_BYTES, -1);
    if (growing_bytes(outbox) > 0)
        push(outbox, growing_bytes(outbox), -1);
}

/* The caller has reserved the space. */
static void append(bs_outbox *outbox, const void *bytes, size_t length)
{
    if (length > 0)
        memcpy(outbox->bytes.memory + outbox->bytes.end, bytes, length);
    bs_bytes_extend(&outbox->bytes, length);
}

/* Adds a session's bytes, whose space is reserved, to the last frame or to a new one. */
static void add(bs_outbox *outbox, uint32_t kind, uint64_t session, const char *bytes, size_t length)
{
    bs_frame_header *last = &outbox->last;
    while (length > 0) {
        const size_t taken = length < BS_FRAME_BYTES_MAX ? length : BS_FRAME_BYTES_MAX;
        const bool same = last->length > 0 && last->kind == kind && last->number == session;
        if (!same || last->length + taken > BS_FRAME_BYTES_MAX || growing_bytes(outbox) + taken > BS_RING_MESSAGE_MAX) {
            if (growing_bytes(outbox) + sizeof *last + taken > BS_RING_MESSAGE_MAX)
                complete(outbox);
            *last = (bs_frame_header){0, kind, session};
            append(outbox, last, sizeof *last);
        }
        append(outbox, bytes, taken);
        last->length += (uint32_t)taken;
        memcpy(outbox->bytes.memory + outbox->bytes.end - last->length - sizeof *last, last, sizeof *last);
        bytes += taken;
        length -= taken;
    }
}

int bs_outbox_add(bs_outbox *outbox, uint32_t kind, uint64_t session, const char *head, size_t head_length,
                  const char *bytes, size_t length)
{
    const size_t frames = head_length / BS_FRAME_BYTES_MAX + length / BS_FRAME_BYTES_MAX + 2;
    if (length > SIZE_MAX / 2 ||
        !bs_bytes_reserve(&outbox->bytes, head_length + length + frames * sizeof(bs_frame_header)))
        return -ENOMEM;
    add(outbox, kind, session, head, head_length);
    add(outbox, kind, session, bytes, length);
    return 0;
}

int bs_outbox_add_frame(bs_outbox *outbox, uint32_t kind, uint64_t number, const void *content, size_t length, int fd)
{
    const bs_frame_header header = {(uint32_t)length, kind, number};
    const size_t size = sizeof header + length;
    int error = length > BS_FRAME_MAX || (fd >= 0 && size > BS_MESSAGE_BYTES) ? -EMSGSIZE : 0;
    if (fd >= 0 || growing_bytes(outbox) + size > BS_RING_MESSAGE_MAX)
        complete(outbox);
    if (!error && !bs_bytes_reserve(&outbox->bytes, size))
        error = -ENOMEM;
    if (error) {
        bs_close(fd);
        return error;
    }
    append(outbox, &header, sizeof header);
    append(outbox, content, length);
    outbox->last.length = 0;
    if (fd >= 0)
        push(outbox, size, fd);
    else if (size > BS_RING_MESSAGE_MAX)
        complete(outbox); /* the next frame starts a new message */
    return 0;
}

void bs_outbox_must_add(bs_outbox *outbox, uint32_t kind, uint64_t number, const void *content, size_t length)
{
    if (bs_outbox_add_frame(outbox, kind, number, content, length, -1) != 0)
        abort();
    outbox->has_waited = outbox->has_waited || kind == BS_FRAME_WAITED;
}

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
    bs_close(first->fd);
    bs_bytes_take(&outbox->bytes, first->length);
    outbox->complete_bytes -= first->length;
    outbox->head++;
    outbox->count--;
}

void bs_outbox_free(bs_outbox *outbox)
{
    for (uint32_t i = 0; i < outbox->count; i++)
        bs_close(at(outbox, i)->fd);
    bs_bytes_free(&outbox->bytes);
    free(outbox->ring);
    *outbox = (bs_outbox){0};
}
