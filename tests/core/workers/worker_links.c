/* Two threads exchange messages of all kinds over a link, and sleep when there is nothing to do; and two threads share
 * a ring. Ends with 1 if a message is lost, changed or late. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "links/worker_link.h"

enum {
    FRAMES = 30000,
    ONE_WAY = FRAMES / 3,      /* the first frames go in one direction, to a reader that pauses */
    IN_TURN = FRAMES / 3 * 2,  /* from here on each frame answers one */
    BURST = 100,
    PAUSE_US = 300,
    OUTBOX_BYTES = 100000,     /* more than a ring, so a writer often waits for space */
    LARGE = 40000,       /* bytes; too large for a ring */
    LATE_MS = 5000,      /* nothing has woken a worker that has a message */
    RING_MESSAGES = 300000
};

typedef struct {
    bs_peer peer;
    bs_outbox outbox;
    bs_inbox *inbox;
    int wake_fd;
    unsigned seed;
    bool second;
    uint64_t sent, received;
} end;

static _Noreturn void fail(const char *what)
{
    (void)fprintf(stderr, "%s\n", what);
    exit(1);
}

/* The sizes and descriptors depend on the number alone, so the receiver knows them. */
static size_t size_of(uint64_t number)
{
    const uint64_t mixed = number * UINT64_C(0x9e3779b97f4a7c15) >> 40;
    return mixed % 50 == 0 ? LARGE : mixed % 7 == 0 ? mixed % 5000 : mixed % 200;
}

static bool has_descriptor(uint64_t number)
{
    return number % 997 == 5 && size_of(number) < LARGE;
}

static bool may_add(const end *this)
{
    const bool waits = this->second && this->received < ONE_WAY;
    const bool in_turn = this->sent >= IN_TURN && this->sent > this->received;
    return this->sent < FRAMES && !waits && !in_turn && bs_outbox_length(&this->outbox) < OUTBOX_BYTES;
}

static void add_frames(end *this)
{
    static const char zeros[LARGE];
    char content[LARGE];
    memcpy(content, zeros, sizeof content);
    for (int i = rand_r(&this->seed) % BURST; i >= 0 && may_add(this); i--) {
        const uint64_t number = ++this->sent;
        memset(content, (int)(number % 256), size_of(number));
        const int fd = has_descriptor(number) ? dup(this->wake_fd) : -1;
        if (bs_outbox_add_frame(&this->outbox, BS_FRAME_FEED, number, content, size_of(number), fd) != 0)
            fail("no memory");
    }
}

static void check(end *this, const bs_frame *frame, int fd)
{
    const uint64_t number = ++this->received;
    if (frame->header.number != number || frame->header.length != size_of(number))
        fail("a frame is not the next one");
    for (uint32_t i = 0; i < frame->header.length; i++)
        if (frame->content[i] != (char)(number % 256))
            fail("a frame has changed");
    if (has_descriptor(number) != (fd >= 0))
        fail("a descriptor is with another frame");
}

/* Returns whether there was a message. */
static bool receive(end *this)
{
    static _Thread_local char buffer[BS_MESSAGE_BYTES];
    int fd;
    const ssize_t length = bs_peer_receive(&this->peer, buffer, &fd);
    if (length < 0)
        fail("the link has failed");
    for (size_t done = 0; done < (size_t)length;) {
        bs_frame frame;
        const int64_t size = bs_frame_read(buffer + done, (size_t)length - done, &frame);
        if (size <= 0)
            fail("a message has no whole frames");
        check(this, &frame, fd);
        done += (size_t)size;
    }
    if (fd >= 0)
        (void)close(fd);
    return length > 0;
}

static void wait_for_work(end *this, bool socket_full)
{
    uint64_t ticket;
    __atomic_store_n(&this->inbox->asleep, this->inbox->incarnations, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    struct pollfd ready[] = {{.fd = this->peer.fd, .events = (short)(POLLIN | (socket_full ? POLLOUT : 0))},
                             {.fd = this->wake_fd, .events = POLLIN}};
    const bool can_write = bs_outbox_length(&this->outbox) > 0 && bs_peer_has_space(&this->peer);
    if (!bs_peer_first_message(&this->peer, &ticket) && !can_write && poll(ready, 2, LATE_MS) == 0)
        fail("nothing woke a worker");
    __atomic_store_n(&this->inbox->asleep, 0, __ATOMIC_RELAXED);
    uint64_t count;
    ssize_t length = read(this->wake_fd, &count, sizeof count);
    (void)length;
}

static void *run_end(void *context)
{
    end *this = context;
    bs_peer_offer_ring(&this->peer, &this->outbox, this->wake_fd, this->inbox->incarnations);
    while (this->received < FRAMES || this->sent < FRAMES || bs_outbox_length(&this->outbox) > 0) {
        add_frames(this);
        const bs_send_result result = bs_peer_send(&this->peer, &this->outbox);
        bool any = false;
        for (int i = rand_r(&this->seed) % BURST; i > 0 && receive(this); i--)
            any = true;
        bs_peer_wake_writer(&this->peer);
        if (this->received < ONE_WAY && any)
            (void)usleep(PAUSE_US);
        const bool done = this->received == FRAMES && bs_outbox_length(&this->outbox) == 0;
        if (!any && !may_add(this) && !done)
            wait_for_work(this, result == BS_SOCKET_FULL);
    }
    if (!this->peer.writes_ring || !this->peer.reads_ring)
        fail("the link has no rings");
    return NULL;
}

static void exchange(void)
{
    static bs_inbox inboxes[2];
    end ends[2] = {{.seed = 1}, {.seed = 2, .second = true}};
    pthread_t threads[2];
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) != 0)
        fail("no sockets");
    for (int i = 0; i < 2; i++) {
        ends[i].peer = BS_NO_PEER;
        ends[i].peer.fd = fds[i];
        ends[i].peer.inbox = &inboxes[1 - i];
        ends[i].inbox = &inboxes[i];
        inboxes[i].incarnations = 7;
        ends[i].wake_fd = eventfd(0, EFD_NONBLOCK);
    }
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, run_end, &ends[i]) != 0)
            fail("no threads");
    for (int i = 0; i < 2; i++)
        (void)pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        bs_peer_close(&ends[i].peer);
        bs_outbox_free(&ends[i].outbox);
        (void)close(ends[i].wake_fd);
    }
}

static void *write_ring(void *context)
{
    uint64_t tickets = 0;
    char message[300];
    for (uint64_t i = 0; i < RING_MESSAGES; i++) {
        memset(message, (int)(i % 256), sizeof message);
        while (!bs_message_ring_put(context, &tickets, message, i % sizeof message))
            continue;
    }
    return NULL;
}

/* Both threads use the same mapping, because ThreadSanitizer knows addresses. */
static void share_ring(void)
{
    int fd;
    pthread_t writer;
    char message[BS_RING_MESSAGE_MAX];
    bs_message_ring *ring = bs_message_ring_new(&fd);
    if (!ring || pthread_create(&writer, NULL, write_ring, ring) != 0)
        fail("no memory");
    for (uint64_t i = 0; i < RING_MESSAGES;) {
        const ssize_t length = bs_message_ring_take(ring, message);
        if (length < 0)
            continue;
        if (length != (ssize_t)(i % 300) || (length > 0 && message[length - 1] != (char)(i % 256)))
            fail("the ring has another message");
        i++;
    }
    (void)pthread_join(writer, NULL);
    bs_message_ring_unmap(ring);
    (void)close(fd);
}

int main(void)
{
    share_ring();
    exchange();
    return 0;
}
