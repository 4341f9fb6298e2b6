/* The socket to one other worker, SOCK_SEQPACKET, which keeps messages whole; and the proxies for its sessions. */
#ifndef BS_PEER_H
#define BS_PEER_H

#include <stdbool.h>
#include <sys/types.h>

#include "links/outbox.h"

/* The local proxy for a session of the other worker. */
typedef struct {
    uint64_t home;  /* of the other worker's session; 0: an empty slot */
    uint64_t proxy; /* of the local session, which may have ended */
} bs_proxy;

/* All zeros is an empty table. */
typedef struct {
    bs_proxy *slots;
    size_t capacity; /* a power of two, or 0; at most half full */
    size_t count;
} bs_proxies;

bs_proxy *bs_proxies_find(const bs_proxies *proxies, uint64_t home);

/* Adds an entry without a proxy, valid until the next add or remove. */
bs_proxy *bs_proxies_add(bs_proxies *proxies, uint64_t home);

void bs_proxies_remove(bs_proxies *proxies, bs_proxy *entry);
void bs_proxies_free(bs_proxies *proxies);

enum { BS_PEER_BUSY_BYTES = 1 << 20 }; /* a peer with more bytes in its outbox is busy, until half of them have left */

typedef struct {
    int fd;             /* owned; -1: none */
    bool gone;          /* a send has failed, or its end was read */
    bool reported;      /* Python has the upcall for that */
    bool wants_out;     /* EPOLLOUT is armed */
    bool busy;
    bool awaits_python; /* upcalls with its earlier frames are not handled yet (worker_links.h) */
    bs_bytes in;        /* received, not processed */
    bs_proxies proxies; /* for its sessions */
} bs_peer;

/* Sends what the socket accepts; returns whether bytes are left. After a permanent error the peer is gone. */
bool bs_peer_send(bs_peer *peer, bs_outbox *outbox);

/* Receives one message of at most BS_MESSAGE_BYTES and maybe a descriptor, which the caller owns. Returns its length;
 * 0: there is none. -EPIPE: the other worker has closed its end, or died. -EBADMSG: an invalid message. */
ssize_t bs_peer_receive(bs_peer *peer, char *buffer, int *fd);

/* Closes the socket and resets the state. */
void bs_peer_close(bs_peer *peer);

#endif
