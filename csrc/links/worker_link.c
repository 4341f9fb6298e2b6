#include "links/worker_link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

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
