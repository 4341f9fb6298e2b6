#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/server.h"

typedef union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un path;
} address;

#define TLS_NAME "beanstalkd-py/tls/"

/* The address of a TLS client. The TLS process binds its end of the connection to an abstract address that contains it
 * (server/tls/process.py). It is valid if a process of this user has put its own pid there. */
static const char *behind_tls(address *from, socklen_t length, const struct ucred *peer)
{
    char own[sizeof TLS_NAME + 3 * sizeof(int)];
    char *name = from->path.sun_path + 1; /* after the NUL of abstract addresses */
    size_t size = length > offsetof(struct sockaddr_un, sun_path) ? length - offsetof(struct sockaddr_un, sun_path) : 0;
    if (size < 2 || size >= sizeof from->path.sun_path || name[-1] != '\0' || peer->uid != geteuid())
        return NULL;
    name[size - 1] = '\0';
    int head = snprintf(own, sizeof own, TLS_NAME "%d/", (int)peer->pid);
    const char *client = strncmp(name, own, (size_t)head) == 0 ? strchr(name + head, '/') : NULL;
    return client ? client + 1 : NULL;
}

void bs_peer_address(int fd, char *text)
{
    char host[INET6_ADDRSTRLEN] = "";
    struct ucred credentials;
    socklen_t size = sizeof credentials;
    address from;
    socklen_t length = sizeof from;
    if (getpeername(fd, &from.any, &length) != 0)
        from.any.sa_family = AF_UNSPEC;
    switch (from.any.sa_family) {
    case AF_INET:
        (void)inet_ntop(AF_INET, &from.v4.sin_addr, host, sizeof host); /* the buffer fits any address */
        (void)snprintf(text, BS_ADDRESS_MAX, "%s:%u", host, ntohs(from.v4.sin_port));
        return;
    case AF_INET6:
        (void)inet_ntop(AF_INET6, &from.v6.sin6_addr, host, sizeof host);
        (void)snprintf(text, BS_ADDRESS_MAX, "[%s]:%u", host, ntohs(from.v6.sin6_port));
        return;
    case AF_UNIX:
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0) {
            const char *client = behind_tls(&from, length, &credentials);
            (void)(client ? snprintf(text, BS_ADDRESS_MAX, "%s", client)
                          : snprintf(text, BS_ADDRESS_MAX, "pid:%d", (int)credentials.pid));
            return;
        }
        break;
    default:
        break;
    }
    (void)snprintf(text, BS_ADDRESS_MAX, "gone");
}
