#include "links/worker_link.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file_io.h"

enum { PROXIES_SMALLEST = 16 };

/* --- proxies ---------------------------------------------------------------------------------------------- */

/* The low halves of session numbers are consecutive slots; a multiplication spreads them. */
static size_t place_of(const bs_proxies *proxies, uint64_t home)
{
    return (size_t)(home * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (proxies->capacity - 1);
}

/* The slot of this number, or the empty slot where it belongs. */
static bs_proxy *slot_of(const bs_proxies *proxies, uint64_t home)
{
    size_t place = place_of(proxies, home);
    while (proxies->slots[place].home && proxies->slots[place].home != home)
        place = (place + 1) & (proxies->capacity - 1);
    return &proxies->slots[place];
}

bs_proxy *bs_proxies_find(const bs_proxies *proxies, uint64_t home)
{
    bs_proxy *entry = proxies->count ? slot_of(proxies, home) : NULL;
    return entry && entry->home ? entry : NULL;
}

static void grow(bs_proxies *proxies)
{
    bs_proxies grown = *proxies;
    grown.capacity = proxies->capacity ? proxies->capacity * 2 : PROXIES_SMALLEST;
    grown.slots = bs_must_realloc(NULL, grown.capacity, sizeof *grown.slots);
    memset(grown.slots, 0, grown.capacity * sizeof *grown.slots);
    for (size_t i = 0; i < proxies->capacity; i++)
        if (proxies->slots[i].home)
            *slot_of(&grown, proxies->slots[i].home) = proxies->slots[i];
    free(proxies->slots);
    *proxies = grown;
}

bs_proxy *bs_proxies_add(bs_proxies *proxies, uint64_t home)
{
    assert(home != 0 && !bs_proxies_find(proxies, home));
    if (proxies->count * 2 >= proxies->capacity)
        grow(proxies);
    bs_proxy *entry = slot_of(proxies, home);
    *entry = (bs_proxy){.home = home};
    proxies->count++;
    return entry;
}

/* Later entries move up, so that no search ends at the gap. */
void bs_proxies_remove(bs_proxies *proxies, bs_proxy *entry)
{
    const size_t mask = proxies->capacity - 1;
    size_t gap = (size_t)(entry - proxies->slots);
    for (size_t at = (gap + 1) & mask; proxies->slots[at].home; at = (at + 1) & mask) {
        size_t wanted = place_of(proxies, proxies->slots[at].home);
        if (((at - wanted) & mask) < ((at - gap) & mask))
            continue; /* its search does not pass the gap */
        proxies->slots[gap] = proxies->slots[at];
        gap = at;
    }
    proxies->slots[gap] = (bs_proxy){0};
    if (--proxies->count == 0)
        bs_proxies_free(proxies);
}

void bs_proxies_free(bs_proxies *proxies)
{
    free(proxies->slots);
    *proxies = (bs_proxies){0};
}

/* --- messages --------------------------------------------------------------------------------------------- */

typedef union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
} one_descriptor;

static ssize_t send_message(int to, const char *bytes, size_t length, int fd)
{
    if (fd < 0)
        return send(to, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    one_descriptor control = {0};
    struct iovec part = {(void *)bytes, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    return sendmsg(to, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static bool is_temporary(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM || error == ETOOMANYREFS;
}

static bs_send_result send_by_socket(bs_peer *peer, const char *bytes, size_t length, int fd)
{
    while (!peer->gone && send_message(peer->fd, bytes, length, fd) < 0) {
        if (is_temporary(errno))
            return BS_SOCKET_FULL;
        peer->gone = errno != EINTR;
    }
    return BS_SENT;
}

static bs_send_result send_first(bs_peer *peer, const char *bytes, size_t length, int fd)
{
    if (!peer->writes_ring && peer->ring_out && peer->doorbell >= 0 && peer->ring_in) {
        const bs_frame_header header = {.kind = BS_FRAME_TO_RING};
        if (send_by_socket(peer, (const char *)&header, sizeof header, -1) != BS_SENT)
            return BS_SOCKET_FULL;
        peer->writes_ring = true;
    }
    if (peer->writes_ring && !peer->announced) {
        const bool fits = fd < 0 && length <= BS_RING_MESSAGE_MAX;
        if (!bs_message_ring_put(peer->ring_out, &peer->inbox->tickets, bytes, fits ? length : 0))
            return BS_RING_FULL;
        if (fits)
            return BS_SENT;
        peer->announced = true;
    }
    const bs_send_result result = send_by_socket(peer, bytes, length, fd);
    peer->announced = peer->announced && result != BS_SENT;
    return result;
}

static void wake(bs_peer *peer)
{
    const uint64_t one = 1;
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* the message was stored before the flag is read (L6) */
    uint32_t incarnation = peer->incarnation;
    if (__atomic_load_n(&peer->inbox->asleep, __ATOMIC_RELAXED) != incarnation ||
        !__atomic_compare_exchange_n(&peer->inbox->asleep, &incarnation, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    ssize_t length = write(peer->doorbell, &one, sizeof one); /* fails only if it is readable already */
    (void)length;
}

bs_send_result bs_peer_send(bs_peer *peer, bs_outbox *outbox)
{
    const char *bytes;
    int fd;
    bs_send_result result = BS_SENT;
    for (size_t length; !peer->gone && (length = bs_outbox_first(outbox, &bytes, &fd)) > 0;) {
        result = send_first(peer, bytes, length, fd);
        if (result != BS_SENT)
            break;
        bs_outbox_sent(outbox);
    }
    if (peer->writes_ring)
        wake(peer);
    return peer->gone ? BS_SENT : result;
}

/* --- rings ------------------------------------------------------------------------------------------------ */

void bs_peer_offer_ring(bs_peer *peer, bs_outbox *outbox, int wake_fd, uint32_t incarnation)
{
    const int doorbell = fcntl(wake_fd, F_DUPFD_CLOEXEC, 0);
    int ring;
    peer->ring_in = doorbell < 0 ? NULL : bs_message_ring_new(&ring);
    if (peer->ring_in && bs_outbox_add_frame(outbox, BS_FRAME_DOORBELL, incarnation, NULL, 0, doorbell) == 0)
        (void)bs_outbox_add_frame(outbox, BS_FRAME_RING, 0, NULL, 0, ring);
    else
        bs_close(peer->ring_in ? ring : doorbell);
}

/* Takes a message about the link itself; false: it is another one. Sets `length` to -EBADMSG for an invalid one. At the
 * limit of open descriptors an offer may lack its descriptor; then there is no ring. */
static bool take_link_message(bs_peer *peer, const char *bytes, ssize_t *length, int *fd)
{
    bs_frame_header header = {0};
    if (*length == sizeof header)
        memcpy(&header, bytes, sizeof header);
    if (header.kind < BS_FRAME_DOORBELL || header.kind > BS_FRAME_TO_RING)
        return false;
    const bool valid[] = {peer->doorbell < 0, !peer->ring_out, *fd < 0 && peer->ring_in};
    if (!valid[header.kind - BS_FRAME_DOORBELL]) {
        *length = -EBADMSG;
        return false;
    }
    if (header.kind == BS_FRAME_TO_RING) {
        peer->reads_ring = true;
    } else if (header.kind == BS_FRAME_DOORBELL) {
        peer->doorbell = *fd;
        peer->incarnation = (uint32_t)header.number;
    } else if (*fd >= 0) {
        peer->ring_out = bs_message_ring_map(*fd);
        (void)close(*fd);
    }
    *fd = -1;
    return true;
}

bool bs_peer_first_message(const bs_peer *peer, uint64_t *ticket)
{
    return peer->reads_ring && !peer->next_in_socket && !peer->awaits_python && !peer->reported &&
           bs_message_ring_first(peer->ring_in, ticket);
}

bool bs_peer_has_space(const bs_peer *peer)
{
    return peer->writes_ring && !peer->announced && !peer->gone && !bs_message_ring_waits(peer->ring_out);
}

void bs_peer_wake_writer(bs_peer *peer)
{
    if (peer->reads_ring && peer->doorbell >= 0 && bs_message_ring_freed(peer->ring_in))
        wake(peer);
}

/* --- receiving -------------------------------------------------------------------------------------------- */

static ssize_t receive_by_socket(const bs_peer *peer, char *buffer, int *fd)
{
    one_descriptor control;
    struct iovec part = {buffer, BS_MESSAGE_BYTES};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    *fd = -1;
    ssize_t length;
    do {
        length = recvmsg(peer->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (length < 0 && errno == EINTR);
    if (length < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -EPIPE;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len >= CMSG_LEN(sizeof *fd))
            memcpy(fd, CMSG_DATA(c), sizeof *fd);
    if (length == 0)
        return -EPIPE;
    return message.msg_flags & MSG_TRUNC ? -EBADMSG : length;
}

ssize_t bs_peer_receive(bs_peer *peer, char *buffer, int *fd)
{
    ssize_t length;
    *fd = -1;
    do {
        if (peer->reads_ring && !peer->next_in_socket) {
            length = bs_message_ring_take(peer->ring_in, buffer);
            if (length == -EAGAIN && !peer->hung_up)
                return 0;
            if (length > 0 || length == -EBADMSG)
                return length;
            peer->next_in_socket = length == 0;
        }
        length = receive_by_socket(peer, buffer, fd);
        peer->next_in_socket = peer->next_in_socket && length == 0;
    } while (length > 0 && bs_bytes_length(&peer->in) == 0 && take_link_message(peer, buffer, &length, fd));
    return length;
}

void bs_peer_close(bs_peer *peer)
{
    bs_close(peer->fd);
    bs_close(peer->doorbell);
    bs_message_ring_unmap(peer->ring_in);
    bs_message_ring_unmap(peer->ring_out);
    bs_bytes_free(&peer->in);
    bs_proxies_free(&peer->proxies);
    *peer = BS_NO_PEER;
}
