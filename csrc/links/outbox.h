/* What is to be said to one other worker: whole frames in the order of adding, cut into messages. No sockets here.
 *
 * A frame lies in one message, unless it is larger than a message takes; then it has some of its own. A descriptor
 * travels with the one frame of its message. Consecutive bytes of one session are one frame as long as that has not
 * been given out. Whoever adds cannot wait, so an outbox has no bound of its own; it is kept short by those who add: a
 * session asks for so much at a time (remote_commands.h), and while a peer is busy no command is added for it.
 */
#ifndef BS_OUTBOX_H
#define BS_OUTBOX_H

#include <stdbool.h>

#include "base/bytes.h"
#include "links/frames.h"

enum { BS_MESSAGE_BYTES = 64 * 1024 };

typedef struct {
    uint32_t length;
    int fd; /* -1: none */
} bs_message;

/* All zeros is an empty one. It owns the descriptors in it. */
typedef struct {
    bs_bytes bytes;
    bs_message *ring; /* the messages that are complete, the first at the front of `bytes` */
    uint32_t head;
    uint32_t count;
    uint32_t capacity; /* a power of two, or 0 */
    size_t complete;   /* bytes of those; what follows is a message that still grows */
    size_t grows;      /* bytes of a session in the last frame, if that may grow; 0: it may not */
    uint64_t session;  /* and whose they are */
    int kind;
    bool has_waited; /* a WAITED among what has not left: worker_links.h, L5 */
} bs_outbox;

/* Adds the bytes of both pieces, as FEED or OUTPUT of this session. 0, or -ENOMEM and nothing is added. */
int bs_outbox_add(bs_outbox *outbox, int kind, uint64_t session, const char *head, size_t head_length,
                  const char *bytes, size_t length);

/* Adds a whole frame, and a descriptor or -1, which is the outbox's from now on, also on failure. 0, -ENOMEM, or
 * -EMSGSIZE for a descriptor's frame that is too large for a message. */
int bs_outbox_add_frame(bs_outbox *outbox, const char *frame, size_t length, int fd);

/* What cannot be refused: memory running out ends the process (alloc.h). A frame with one number (CLOSE, ENDED, SYNC,
 * SYNCED, ARRIVED); WAITED; COUNT; and CENSUS. */
void bs_outbox_add_end(bs_outbox *outbox, int kind, uint64_t session);
void bs_outbox_add_waited(bs_outbox *outbox, uint64_t session, uint64_t token, int how);
void bs_outbox_add_count(bs_outbox *outbox, const char *name, size_t length, uint32_t users, uint32_t watchers,
                         uint32_t holds, uint64_t number);
void bs_outbox_add_census(bs_outbox *outbox, uint64_t adopted, uint64_t producers, uint64_t workers, uint64_t moves);

/* The first message: its length, 0 when there is none. Nothing is added to it any more. */
size_t bs_outbox_first(bs_outbox *outbox, const char **bytes, int *fd);

/* It has left; its descriptor is closed. */
void bs_outbox_took(bs_outbox *outbox);

static inline size_t bs_outbox_length(const bs_outbox *outbox)
{
    return bs_bytes_length(&outbox->bytes);
}

/* Empties it. */
void bs_outbox_free(bs_outbox *outbox);

#endif
