/* The link to one other worker: a socket, SOCK_SEQPACKET, which keeps messages whole, and rings in shared memory beside
 * it; and the proxies for the other worker's sessions.
 *
 * A worker that offers to read a ring sends its descriptor (RING), after a doorbell: an eventfd that wakes it. The other
 * worker sends TO_RING and then writes to the ring. Messages that are large or have a descriptor still use the socket,
 * each announced by an empty message in the ring, so there is one order.
 *   L6  No message in a ring waits for a worker that sleeps: a worker sets `asleep` in its inbox before it looks at its
 *       rings for the last time, and a writer looks at `asleep` after it has put a message. The same holds for a writer
 *       that waits for space.
 *   L7  Messages of all rings are read in the order of their tickets, so the messages of a command precede those of the
 *       client's later commands, also if they come from different workers.
 */
#ifndef BS_PEER_H
#define BS_PEER_H

#include <stdbool.h>
#include <sys/types.h>

#include "links/message_ring.h"
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
    bool hung_up;       /* the other end of the socket is closed; messages may be left */
    bool wants_out;     /* EPOLLOUT is armed */
    bool reads_ring;    /* after TO_RING */
    bool writes_ring;   /* TO_RING was sent */
    bool next_in_socket; /* the next message to receive */
    bool announced;     /* an empty message precedes the first message of the outbox, which goes through the socket */
    bs_message_ring *ring_in;  /* messages of the other worker; owned; NULL: none */
    bs_message_ring *ring_out; /* messages to it; owned; NULL: none */
    int doorbell;         /* owned; of the other worker; -1: none */
    uint32_t incarnation; /* of the other worker; its successor has another one, and another doorbell */
    bs_inbox *inbox;      /* of the other worker */
    bool busy;
    bool awaits_python; /* upcalls with its earlier frames are not handled yet (worker_links.h) */
    bs_bytes in;        /* received, not processed */
    bs_proxies proxies; /* for its sessions */
} bs_peer;

/* Why messages are left. The reader of a full ring writes to the doorbell when it has read some. */
typedef enum { BS_SENT, BS_SOCKET_FULL, BS_RING_FULL } bs_send_result;

/* A link without a descriptor, as all are at first. */
#define BS_NO_PEER ((bs_peer){.fd = -1, .doorbell = -1})

/* Makes a ring and adds its offer to the outbox; `wake_fd` and `incarnation` are this worker's. Without memory or
 * descriptors the link stays without rings. */
void bs_peer_offer_ring(bs_peer *peer, bs_outbox *outbox, int wake_fd, uint32_t incarnation);

/* Sends as much as socket and ring accept, and wakes the other worker if it sleeps. A permanent error sets `gone`. */
bs_send_result bs_peer_send(bs_peer *peer, bs_outbox *outbox);

/* Receives one message of at most BS_MESSAGE_BYTES and maybe a descriptor, which the caller owns. Returns its length;
 * 0: there is none. -EPIPE: the other worker has closed its end, or died. -EBADMSG: an invalid message. */
ssize_t bs_peer_receive(bs_peer *peer, char *buffer, int *fd);

/* Returns whether a message in the ring can be received, and its ticket. Messages in the socket make it readable. */
bool bs_peer_first_message(const bs_peer *peer, uint64_t *ticket);

/* Returns whether messages that are left fit into the ring. */
bool bs_peer_has_space(const bs_peer *peer);

/* Wakes the other worker if it waits for space in the ring that this one reads. */
void bs_peer_wake_writer(bs_peer *peer);

/* Closes the socket and resets the state. */
void bs_peer_close(bs_peer *peer);

#endif
