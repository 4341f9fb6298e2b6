/* What a load is answered, read from any pieces of bytes: the few replies that mean that all goes well. No sockets. */
#ifndef BS_LOAD_REPLIES_H
#define BS_LOAD_REPLIES_H

#include <stddef.h>
#include <stdint.h>

enum {
    BS_REPLY_LINE_MAX = 64, /* the longest line expected is RESERVED <20 digits> <10 digits> */
    BS_ID_DIGITS_MAX = 20,
    BS_DELETE_MAX = 7 + BS_ID_DIGITS_MAX + 2
};

/* Of one connection. `deletes` is the caller's memory, BS_DELETE_MAX bytes for each command in flight. */
typedef struct {
    size_t skip;         /* bytes of a body still to come */
    size_t tail_bytes;
    size_t delete_bytes;
    uint32_t deletes_count;
    char *deletes;       /* a delete for each RESERVED */
    char tail[BS_REPLY_LINE_MAX]; /* the beginning of a line */
} bs_replies;

/* Reads one reply to a BS_LOAD_ kind of command: the length of its line; 0: it is cut; -1: it is another one. `body` is
 * what a job must have, UINT64_MAX: anything. */
ptrdiff_t bs_reply_read(bs_replies *replies, int kind, uint64_t body, const char *bytes, size_t n);

/* The same for TIMED_OUT. */
ptrdiff_t bs_reply_timed_out(const char *bytes, size_t n);

#endif
