/* Frames between workers: a header and its content.
 *
 * Numbers have the layout of this machine, because all workers run the same program. The core executes the frames that
 * are sent for each command, and those that must keep their order with them. Python packs and executes the others
 * (server/worker/upcalls.py).
 */
#ifndef BS_FRAMES_H
#define BS_FRAMES_H

#include <errno.h>
#include <string.h>

#include "api/server.h"
#include "shards/multi_shard_reserve.h"

enum {
    BS_FRAME_BYTES_MAX = 12 * 1024, /* bytes of a session in one frame */
    BS_FRAME_MAX = 1 << 30,         /* bytes of content */
    BS_RING_MESSAGE_MAX = 16 * 1024, /* bytes; several frames share a message that is not longer */
    BS_MESSAGE_BYTES = 64 * 1024    /* one message between two workers: whole frames, or a part of a large one */
};

typedef struct {
    uint32_t length; /* bytes of the content that follows */
    uint32_t kind;   /* BS_FRAME_ */
    uint64_t number; /* a session at home, or the argument of the frame */
} bs_frame_header;

/* The content of the frames of a multi-shard reserve but HEAD_IS. */
typedef struct {
    uint64_t token;
    uint64_t argument; /* 0 if the kind has none */
} bs_reserve_step;

/* The content of HEAD_IS. */
typedef struct {
    uint64_t token;
    bs_head head;
} bs_head_is;

/* The content of CENSUS: what a worker reports of itself. */
typedef struct {
    uint64_t adopted; /* connections from the parent */
    uint64_t producers;
    uint64_t workers;
    uint64_t moves;   /* sum of its migrations: those of all workers cancel out when no connection is on its way */
} bs_census;

typedef struct {
    bs_frame_header header;
    const char *content;
} bs_frame;

/* Reads the frame at the start of these bytes and returns its length. 0: it is incomplete; -EBADMSG: it is too long. */
static inline int64_t bs_frame_read(const char *bytes, size_t length, bs_frame *frame)
{
    if (length < sizeof frame->header)
        return 0;
    memcpy(&frame->header, bytes, sizeof frame->header);
    frame->content = bytes + sizeof frame->header;
    if (frame->header.length > BS_FRAME_MAX)
        return -EBADMSG;
    const size_t size = sizeof frame->header + frame->header.length;
    return size <= length ? (int64_t)size : 0;
}

#endif
