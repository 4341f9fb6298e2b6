#include "base/folder.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LINKS = 40 }; /* as many as Linux follows */

static int walk(int from, const char *path, int *links);

/* The target is read from the link that was looked at, because its name can be another link's by now. */
static int follow(int at, int link, int *links)
{
    struct stat status;
    char target[PATH_MAX];
    if (fstat(link, &status) != 0)
        return -errno;
    if (!S_ISLNK(status.st_mode))
        return -ENOTDIR;
    if (status.st_uid != 0 && status.st_uid != geteuid())
        return BS_UNTRUSTED_LINK;
    if (++*links > MOST_LINKS)
        return -ELOOP;
    ssize_t length = readlinkat(link, "", target, sizeof target);
    if (length < 0)
        return -errno;
    if ((size_t)length == sizeof target)
        return -ENAMETOOLONG;
    target[length] = '\0';
    return walk(at, target, links);
}

static int enter(int at, const char *name, int *links)
{
    int next = openat(at, name, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
    if (next >= 0)
        return next;
    if (errno != ENOTDIR)
        return -errno;
    int link = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (link < 0)
        return -errno;
    next = follow(at, link, links);
    (void)close(link);
    return next;
}

/* Only to go on from: O_PATH needs no right to read the folders on the way. */
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
