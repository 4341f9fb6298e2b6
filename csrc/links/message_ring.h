/* Messages to one worker in shared memory: a ring of bytes with one writer and one reader.
 *
 * A message costs no system call while both workers run. The reader makes the ring and sends its descriptor to the
 * writer. An empty message announces that the next message is in the socket (worker_link.h). All writers to one reader
 * draw tickets from one counter, so a message that was put before another one was begun has the lower ticket.
 */
#ifndef BS_MESSAGE_RING_H
#define BS_MESSAGE_RING_H

#include <stdbool.h>
#include <sys/types.h>

#include "links/frames.h"

typedef struct bs_message_ring bs_message_ring;

/* Makes an empty ring; the caller owns the descriptor, too. NULL without memory or descriptors. */
bs_message_ring *bs_message_ring_new(int *fd);

/* Maps the ring of this descriptor, which stays open. NULL without memory, or if it is no ring. */
bs_message_ring *bs_message_ring_map(int fd);
void bs_message_ring_unmap(bs_message_ring *ring);

/* False: the ring is full, and `bs_message_ring_freed` will be true once there is space. */
bool bs_message_ring_put(bs_message_ring *ring, uint64_t *tickets, const char *bytes, size_t length);

/* Returns whether the last put failed and the reader has freed nothing since. */
bool bs_message_ring_waits(const bs_message_ring *ring);

/* Moves the first message to `buffer`, which has BS_RING_MESSAGE_MAX bytes; returns its length. -EAGAIN: there is none;
 * -EBADMSG: the ring is damaged. */
ssize_t bs_message_ring_take(bs_message_ring *ring, char *buffer);

/* Returns whether there is a message, and its ticket. */
bool bs_message_ring_first(const bs_message_ring *ring, uint64_t *ticket);

/* Called by the reader after it has taken messages. Returns, once, whether the writer waited for space: wake it. */
bool bs_message_ring_freed(bs_message_ring *ring);

#endif
