#include "links/message_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RING_BYTES = 64 * 1024 };

/* Precedes each message, at a multiple of its size, so it is never split at the end of the ring. */
typedef struct {
    uint64_t ticket;
    uint64_t length;
} header;

/* Positions count all bytes ever, so the ring is empty if both are equal. */
struct bs_message_ring {
    uint64_t read;         /* by the reader */
    char padding_1[BS_ALIGNMENT - sizeof(uint64_t)];
    uint64_t written;      /* by the writer */
    uint32_t writer_waits; /* for space */
    char padding_2[BS_ALIGNMENT - sizeof(uint64_t) - sizeof(uint32_t)];
    char bytes[RING_BYTES];
};

bs_message_ring *bs_message_ring_map(int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || status.st_size != (off_t)sizeof(bs_message_ring))
        return NULL;
    void *memory = mmap(NULL, sizeof(bs_message_ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

bs_message_ring *bs_message_ring_new(int *fd)
{
    *fd = memfd_create("beanstalkd-ring", MFD_CLOEXEC);
    if (*fd < 0)
        return NULL;
    /* Allocates the pages now, because a store without memory would be a SIGBUS. */
    bs_message_ring *ring = fallocate(*fd, 0, 0, sizeof *ring) == 0 ? bs_message_ring_map(*fd) : NULL;
    if (!ring)
        (void)close(*fd);
    return ring;
}

void bs_message_ring_unmap(bs_message_ring *ring)
{
    if (ring)
        (void)munmap(ring, sizeof *ring);
}

static uint64_t space_for(size_t length)
{
    return sizeof(header) + (length + sizeof(header) - 1) / sizeof(header) * sizeof(header);
}

static void copy_in(bs_message_ring *ring, uint64_t position, const void *from, size_t length)
{
    const size_t start = position % RING_BYTES;
    const size_t first = length < RING_BYTES - start ? length : RING_BYTES - start;
    memcpy(ring->bytes + start, from, first);
    memcpy(ring->bytes, (const char *)from + first, length - first);
}

static void copy_out(const bs_message_ring *ring, uint64_t position, void *to, size_t length)
{
    const size_t start = position % RING_BYTES;
    const size_t first = length < RING_BYTES - start ? length : RING_BYTES - start;
    memcpy(to, ring->bytes + start, first);
    memcpy((char *)to + first, ring->bytes, length - first);
}

static bool fits(const bs_message_ring *ring, uint64_t space)
{
    return ring->written + space - __atomic_load_n(&ring->read, __ATOMIC_SEQ_CST) <= RING_BYTES;
}

bool bs_message_ring_put(bs_message_ring *ring, uint64_t *tickets, const char *bytes, size_t length)
{
    if (!fits(ring, space_for(length))) {
        /* The reader frees space before it looks at the flag, so one of the two sees what the other has stored. */
        __atomic_store_n(&ring->writer_waits, 1, __ATOMIC_SEQ_CST);
        if (!fits(ring, space_for(length)))
            return false;
        __atomic_store_n(&ring->writer_waits, 0, __ATOMIC_RELAXED);
    }
    const header first = {__atomic_fetch_add(tickets, 1, __ATOMIC_SEQ_CST), length};
    copy_in(ring, ring->written, &first, sizeof first);
    if (length > 0)
        copy_in(ring, ring->written + sizeof first, bytes, length);
    __atomic_store_n(&ring->written, ring->written + space_for(length), __ATOMIC_RELEASE);
    return true;
}

ssize_t bs_message_ring_take(bs_message_ring *ring, char *buffer)
{
    header first;
    const uint64_t unread = __atomic_load_n(&ring->written, __ATOMIC_ACQUIRE) - ring->read;
    if (unread == 0)
        return -EAGAIN;
    copy_out(ring, ring->read, &first, sizeof first);
    if (unread > RING_BYTES || first.length > BS_RING_MESSAGE_MAX || space_for(first.length) > unread)
        return -EBADMSG;
    copy_out(ring, ring->read + sizeof first, buffer, first.length);
    __atomic_store_n(&ring->read, ring->read + space_for(first.length), __ATOMIC_RELEASE);
    return (ssize_t)first.length;
}

bool bs_message_ring_first(const bs_message_ring *ring, uint64_t *ticket)
{
    if (__atomic_load_n(&ring->written, __ATOMIC_ACQUIRE) == ring->read)
        return false;
    copy_out(ring, ring->read, ticket, sizeof *ticket);
    return true;
}

bool bs_message_ring_waits(const bs_message_ring *ring)
{
    return __atomic_load_n(&ring->writer_waits, __ATOMIC_RELAXED);
}

bool bs_message_ring_freed(bs_message_ring *ring)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return __atomic_load_n(&ring->writer_waits, __ATOMIC_RELAXED) &&
           __atomic_exchange_n(&ring->writer_waits, 0, __ATOMIC_RELAXED);
}
