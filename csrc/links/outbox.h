/* The frames for one other worker, in order, cut into messages. No sockets.
 *
 * A frame is in one message, unless it is larger than a message; then it has messages of its own. A descriptor travels
 * with the only frame of its message. Consecutive bytes of one session share a frame until its message is taken. An
 * outbox has no bound of its own: a session may have a limited number of outstanding commands (remote_commands.h), and
 * while a peer is busy it gets no commands.
 */
#ifndef BS_OUTBOX_H
#define BS_OUTBOX_H

#include <stdbool.h>

#include "base/bytes.h"
#include "links/frames.h"

typedef struct {
    uint32_t length;
    int fd; /* -1: none */
} bs_message;

/* All zeros is an empty outbox. It owns its descriptors. */
typedef struct {
    bs_bytes bytes;
    bs_message *ring;  /* complete messages, the first at the front of `bytes` */
    uint32_t head;
    uint32_t count;
    uint32_t capacity; /* a power of two, or 0 */
    size_t complete_bytes; /* of complete messages; the growing message follows */
    bs_frame_header last; /* the last frame, if it has bytes of a session; length 0: it cannot grow */
    bool has_waited;   /* a WAITED has not left (worker_links.h, L5) */
} bs_outbox;

/* Adds both pieces as FEED or OUTPUT of this session. 0, or -ENOMEM and nothing is added. */
int bs_outbox_add(bs_outbox *outbox, uint32_t kind, uint64_t session, const char *head, size_t head_length,
                  const char *bytes, size_t length);

/* Adds a whole frame, and a descriptor or -1, which the outbox owns, also on failure. 0, -ENOMEM, or -EMSGSIZE: a frame
 * with a descriptor must fit into a message. */
int bs_outbox_add_frame(bs_outbox *outbox, uint32_t kind, uint64_t number, const void *content, size_t length, int fd);

/* Adds a frame that cannot be refused: without memory the process ends (alloc.h). */
void bs_outbox_must_add(bs_outbox *outbox, uint32_t kind, uint64_t number, const void *content, size_t length);

/* Returns the length of the first message, 0 without any. It cannot grow any more. */
size_t bs_outbox_first(bs_outbox *outbox, const char **bytes, int *fd);

/* The first message has left; closes its descriptor. */
void bs_outbox_sent(bs_outbox *outbox);

static inline size_t bs_outbox_length(const bs_outbox *outbox)
{
    return bs_bytes_length(&outbox->bytes);
}

void bs_outbox_free(bs_outbox *outbox);

#endif
