/* Units of time, and the monotonic clock, which only the round and the sync thread read. */
#ifndef BS_CLOCK_H
#define BS_CLOCK_H

#include <stdint.h>
#include <time.h>

/* In nanoseconds. */
#define BS_SECOND INT64_C(1000000000)
#define BS_MILLISECOND INT64_C(1000000)
#define BS_MICROSECOND INT64_C(1000)

/* Nanoseconds. */
static inline int64_t bs_clock_mono(void)
{
    struct timespec mono;
    (void)clock_gettime(CLOCK_MONOTONIC, &mono); /* cannot fail: it exists on every Linux */
    return (int64_t)mono.tv_sec * BS_SECOND + mono.tv_nsec;
}

/* Nanoseconds since the boot, suspended time included. */
static inline int64_t bs_clock_boot(void)
{
    struct timespec boot;
    (void)clock_gettime(CLOCK_BOOTTIME, &boot); /* likewise */
    return (int64_t)boot.tv_sec * BS_SECOND + boot.tv_nsec;
}

#endif
