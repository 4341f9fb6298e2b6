/* Frames between workers as msgpack: finding their end, and reading and writing the frames of the core.
 *
 * A frame is an array that starts with its kind; server/worker/frames.py lists all kinds. Frames that are sent for each
 * command, and those that must keep their order with them, are the core's (BS_FRAME_...). The rest is Python's. Reading
 * never goes beyond the given bytes. No sockets, no memory of its own.
 */
#ifndef BS_FRAMES_H
#define BS_FRAMES_H

#include "api/testing.h"

enum {
    BS_FRAME_FEED = 0,     /* [session, bytes] */
    BS_FRAME_CLOSE = 1,    /* [session] */
    BS_FRAME_COUNT = 9,    /* [tube, users, watchers, holds, number] */
    BS_FRAME_SYNC = 12,    /* [token]; these four: barrier.h */
    BS_FRAME_CENSUS = 13,  /* [adopted, producers, workers, moves] */
    BS_FRAME_OUTPUT = 20,  /* [session, bytes] */
    BS_FRAME_WAITED = 23,  /* [session, token, outcome]; Python reads it */
    BS_FRAME_ENDED = 27,   /* [session] */
    BS_FRAME_SYNCED = 28,  /* [token] */
    BS_FRAME_ARRIVED = 29, /* [number] */
    BS_FRAME_OTHER = -1,   /* Python's, or invalid */

    BS_FRAME_BYTES_MAX = 48 * 1024, /* bytes of a session in one frame */
    BS_FRAME_HEAD_MAX = 16,         /* before these bytes */
    BS_FRAME_WAITED_MAX = 32,
    BS_FRAME_COUNT_MAX = 256,
    BS_FRAME_CENSUS_MAX = 40,
    BS_FRAME_MAX = 1 << 30,
    BS_MESSAGE_BYTES = 64 * 1024    /* one message between two workers: whole frames, or a part of a large one */
};

/* api/testing.h declares bs_frame and the other functions, which tests use. */
size_t bs_frame_write_waited(char *out, uint64_t session, uint64_t token, int how);

#endif
