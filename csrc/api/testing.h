/* What tests need: frames between workers, and injected faults of system calls. */
#ifndef BS_API_TESTING_H
#define BS_API_TESTING_H

#include "api/types.h"

/* cdef begin */

/* --- frames (frames.h) ------------------------------------------------------------------------------------ */

/* A parsed frame. `bytes` points into the input. */
typedef struct {
    int kind;
    uint64_t session;  /* the home's number; never 0 where there is one */
    const char *bytes; /* of a session, or the name of a tube */
    size_t length;
    uint64_t users;
    uint64_t watchers;
    uint64_t holds;
    uint64_t number;
    uint64_t adopted;
    uint64_t producers;
    uint64_t workers;
    uint64_t moves;
} bs_frame;

/* The progress of a search for the end of a frame; all zeros at first. */
typedef struct {
    size_t at;
    uint64_t items; /* values still to come */
} bs_frame_scan;

/* Returns the length of the frame at the start of these bytes. 0: it is incomplete; the next call, with more bytes
 * after the same ones, continues the search. -EBADMSG: no msgpack, or a frame of more than BS_FRAME_MAX. */
int64_t bs_frame_end(bs_frame_scan *scan, const char *bytes, size_t length);

/* Reads a whole frame. BS_FRAME_OTHER: it is not exactly a frame of the core. */
bs_frame bs_frame_read(const char *bytes, size_t length);

/* These write msgpack with the shortest numbers and lengths, and return how many bytes: at most BS_FRAME_HEAD_MAX, for
 * COUNT at most BS_FRAME_COUNT_MAX. */

/* The head of a FEED or OUTPUT with `length` bytes. */
size_t bs_frame_write_head(char *out, int kind, uint64_t session, size_t length);

/* A frame with one number: CLOSE, ENDED, SYNC, SYNCED or ARRIVED. */
size_t bs_frame_write_end(char *out, int kind, uint64_t session);

/* `name` has at most 200 bytes. */
size_t bs_frame_write_count(char *out, const char *name, size_t length, uint32_t users,
                            uint32_t watchers, uint32_t holds, uint64_t number);
size_t bs_frame_write_census(char *out, uint64_t adopted, uint64_t producers, uint64_t workers, uint64_t moves);

/* --- faults ----------------------------------------------------------------------------------------------- */

/* The binlog's system calls, in the order of the table in file_io.h. */
enum {
    BS_IO_OPEN,
    BS_IO_WRITE,
    BS_IO_READ,
    BS_IO_DATASYNC,
    BS_IO_SYNC,
    BS_IO_TRUNCATE,
    BS_IO_RENAME,
    BS_IO_UNLINK,
    BS_IO_LOCK,
    BS_IO_FILL, /* the zeros of a new file */
    BS_IO_NOTE, /* the line in the lock file */
    BS_IO_CALLS
};

/* Makes the nth call (1 is the next) of the kinds in the mask (1 << BS_IO_...), counted together, fail with `error`;
 * with `lasting` all later ones too. A write that fails with ENOSPC or EIO first writes half its bytes. nth 0 removes
 * the fault. */
void bs_io_fail(unsigned mask, int64_t nth, int error, int lasting);

/* Returns the calls of one kind since the process started. */
int64_t bs_io_calls(int kind);

/* cdef end */

#endif
