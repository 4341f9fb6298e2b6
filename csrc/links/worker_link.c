#include "links/worker_link.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"

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
    bs_proxies grown = {.capacity = proxies->capacity ? proxies->capacity * 2 : PROXIES_SMALLEST, .count = proxies->count};
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

/* A full buffer, too many descriptors in flight, no memory: these are temporary. */
static bool passes(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM || error == ETOOMANYREFS;
}

bool bs_peer_send(bs_peer *peer, bs_outbox *outbox)
{
    const char *bytes;
    int fd;
    for (size_t length; !peer->gone && (length = bs_outbox_first(outbox, &bytes, &fd)) > 0;) {
        if (send_message(peer->fd, bytes, length, fd) >= 0)
            bs_outbox_sent(outbox);
        else if (passes(errno))
            return true;
        else if (errno != EINTR)
            peer->gone = true;
    }
    return false;
}

ssize_t bs_peer_receive(bs_peer *peer, char *buffer, int *fd)
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

void bs_peer_close(bs_peer *peer)
{
    if (peer->fd >= 0)
        (void)close(peer->fd);
    bs_bytes_free(&peer->in);
    bs_proxies_free(&peer->proxies);
    *peer = (bs_peer){.fd = -1};
}
