/* The socket to one other worker: SOCK_SEQPACKET, so that messages come whole. Must not know what is in them. */
#ifndef BS_PEER_H
#define BS_PEER_H

#include <stdbool.h>
#include <sys/types.h>

#include "links/outbox.h"
#include "links/proxies.h"

enum { BS_PEER_BUSY_BYTES = 1 << 20 }; /* kept for it: from here on it is busy, until half of that has left */

typedef struct {
    int fd;             /* owned; -1: none */
    bool gone;          /* it takes no more, or its end has been read */
    bool reported;          /* and Python knows */
    bool wants_out;     /* EPOLLOUT is armed */
    bool busy;
    bool held;          /* Python has frames of it that come before what is in `in` (worker_links.h) */
    bs_bytes in;        /* received, not taken yet */
    bs_frame_scan scan; /* of the frame that begins there */
    bs_proxies proxies; /* for its sessions */
} bs_peer;

/* Sends what can be sent now; whether something is left. After an error that lasts the peer is gone. */
bool bs_peer_send(bs_peer *peer, bs_outbox *outbox);

/* Receives one message of at most BS_MESSAGE_BYTES: its length, and the caller has its descriptor if *fd is not -1.
 * 0: there is none. -EPIPE: the other worker has closed its end, or died. -EBADMSG: no worker sends such a message. */
ssize_t bs_peer_receive(bs_peer *peer, char *buffer, int *fd);

/* Closes it and forgets all of it. */
void bs_peer_close(bs_peer *peer);

#endif
