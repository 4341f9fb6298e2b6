/* Parses the expected replies of a load, in any pieces. No sockets. */
#ifndef BS_LOAD_REPLIES_H
#define BS_LOAD_REPLIES_H

#include <stddef.h>
#include <stdint.h>

enum {
    BS_REPLY_LINE_MAX = 64, /* the longest expected line is RESERVED <20 digits> <10 digits> */
    BS_ID_DIGITS_MAX = 20,
    BS_DELETE_MAX = 7 + BS_ID_DIGITS_MAX + 2
};

/* Of one connection. The caller owns `deletes`, BS_DELETE_MAX bytes for each command in flight. */
typedef struct {
    size_t skip;                  /* of a body, to come */
    size_t tail_bytes;
    size_t delete_bytes;
    uint32_t deletes_count;
    char *deletes;                /* a delete for each RESERVED */
    char tail[BS_REPLY_LINE_MAX]; /* the start of a line */
} bs_replies;

/* Parses one reply to a command of a BS_LOAD_ kind: returns the length of its line; 0: incomplete; -1: unexpected.
 * `body` is the size of a job, UINT64_MAX: any. */
ptrdiff_t bs_reply_read(bs_replies *replies, int kind, uint64_t body, const char *bytes, size_t n);

/* The same for the two replies to a put after a `with`. */
ptrdiff_t bs_reply_read_unique(const char *bytes, size_t n);

/* The same for TIMED_OUT. */
ptrdiff_t bs_reply_timed_out(const char *bytes, size_t n);

#endif
