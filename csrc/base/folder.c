#include "base/folder.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LINKS = 40 }; /* as many as Linux follows */

static int walk(int from, const char *path, int *links);

/* The target is read from the link that was looked at, because its name can be another link's by now. 0 or a negative
 * errno. */
static int read_target(int link, char target[PATH_MAX], int *links)
{
    struct stat status;
    if (fstat(link, &status) != 0)
        return -errno;
    if (!S_ISLNK(status.st_mode))
        return -ENOTDIR;
    if (status.st_uid != 0 && status.st_uid != geteuid())
        return BS_UNTRUSTED_LINK;
    if (++*links > MOST_LINKS)
        return -ELOOP;
    ssize_t length = readlinkat(link, "", target, PATH_MAX);
    if (length < 0)
        return -errno;
    if (length == PATH_MAX)
        return -ENAMETOOLONG;
    target[length] = '\0';
    return 0;
}

static int enter(int at, const char *name, int *links)
{
    char target[PATH_MAX];
    int next = openat(at, name, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
    if (next >= 0 || errno != ENOTDIR)
        return next >= 0 ? next : -errno;
    int link = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (link < 0)
        return -errno;
    int error = read_target(link, target, links);
    (void)close(link);
    return error ? error : walk(at, target, links);
}

/* Returns a descriptor with O_PATH, which needs no right to read the folders on the way. */
static int walk(int from, const char *path, int *links)
{
    int at = openat(from, *path == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return -errno;
    while (at >= 0 && *(path += strspn(path, "/"))) {
        char name[NAME_MAX + 1];
        size_t length = strcspn(path, "/");
        int next = -ENAMETOOLONG;
        if (length < sizeof name) {
            memcpy(name, path, length);
            name[length] = '\0';
            next = enter(at, name, links);
        }
        (void)close(at);
        at = next;
        path += length;
    }
    return at;
}

int bs_open_folder(const char *path)
{
    if (!*path)
        return -ENOENT;
    int links = 0;
    int at = walk(AT_FDCWD, path, &links);
    if (at < 0)
        return at;
    int fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = fd < 0 ? -errno : 0;
    (void)close(at);
    return error ? error : fd;
}

/* Replaces `path` with the target of the link that it names, and `*at` with a descriptor of the folder that the target
 * is relative to. 0 or a negative errno; the caller closes `*at`. */
static int follow_file(int *at, int link, char path[PATH_MAX], int *links)
{
    int error = read_target(link, path, links);
    if (error)
        return error;
    char *slash = strrchr(path, '/');
    if (!slash)
        return 0;
    char name[PATH_MAX];
    (void)snprintf(name, sizeof name, "%s", slash + 1);
    slash[1] = '\0';
    int next = walk(*at, path, links);
    if (next < 0)
        return next;
    (void)close(*at);
    *at = next;
    (void)snprintf(path, PATH_MAX, "%s", *name ? name : ".");
    return 0;
}

int bs_open_linked(int dir_fd, const char *name, int flags)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", name);
    int at = openat(dir_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return -errno;
    int links = 0;
    int error = 0;
    for (bool more = true; more && !error;) {
        int link = openat(at, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (link < 0) {
            error = -errno;
            break;
        }
        struct stat status;
        more = fstat(link, &status) == 0 && S_ISLNK(status.st_mode);
        if (more)
            error = follow_file(&at, link, path, &links);
        (void)close(link);
    }
    int fd = error ? error : openat(at, path, O_RDONLY | flags | O_NOFOLLOW | O_CLOEXEC);
    if (!error && fd < 0)
        fd = -errno;
    (void)close(at);
    return fd;
}
