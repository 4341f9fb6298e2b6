/* Frames between workers as msgpack: where one ends, and those that are written and understood here.
 *
 * A frame is an array, its kind first; server/worker/frames.py lists them all. Those that come per command, and those that
 * have to keep their place among them, are the core's (BS_FRAME_...). All others are Python's, and only their end is
 * looked for here. Nothing behind the given bytes is read, whatever they say. No sockets, no memory of its own.
 */
#ifndef BS_FRAMES_H
#define BS_FRAMES_H

#include "api/testing.h"

enum {
    BS_FRAME_FEED = 0,   /* [session, bytes] */
    BS_FRAME_CLOSE = 1,  /* [session] */
    BS_FRAME_COUNT = 9,  /* [tube, users, watchers, holds, number] */
    BS_FRAME_SYNC = 12,  /* [token]: these four are barrier.h's */
    BS_FRAME_CENSUS = 13, /* [adopted, producers, workers, moves] */
    BS_FRAME_OUTPUT = 20, /* [session, bytes] */
    BS_FRAME_WAITED = 23, /* [session, token, outcome]; only written here, Python reads it */
    BS_FRAME_ENDED = 27, /* [session] */
    BS_FRAME_SYNCED = 28, /* [token] */
    BS_FRAME_ARRIVED = 29, /* [number] */
    BS_FRAME_OTHER = -1, /* Python's, or none that makes sense */

    BS_FRAME_BYTES_MAX = 48 * 1024, /* of a session's bytes in one frame */
    BS_FRAME_HEAD_MAX = 16,         /* what comes before them */
    BS_FRAME_WAITED_MAX = 32,
    BS_FRAME_COUNT_MAX = 256,
    BS_FRAME_CENSUS_MAX = 40,
    BS_FRAME_MAX = 1 << 30
};

/* bs_frame and all functions are declared in api/testing.h. */

#endif
