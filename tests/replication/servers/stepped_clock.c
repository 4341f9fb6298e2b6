/* Preloaded into a process: its wall clock differs by the nanoseconds in the file CLOCK_STEP, which may change. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { BILLION = 1000000000 };

static int64_t step(void)
{
    static const volatile int64_t *mapped;
    if (!mapped) {
        const char *path = getenv("CLOCK_STEP");
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *memory = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *mapped, PROT_READ, MAP_SHARED, fd, 0);
        if (fd >= 0)
            close(fd);
        if (memory == MAP_FAILED)
            return 0;
        mapped = memory;
    }
    return *mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t wall = (int64_t)now->tv_sec * BILLION + now->tv_nsec + step();
        now->tv_sec = wall / BILLION;
        now->tv_nsec = wall % BILLION;
    }
    return result;
}

time_t time(time_t *seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds)
        *seconds = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return result;
}
