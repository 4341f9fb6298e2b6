/* The monotonic clock. Only what is run by time itself reads it: the loop, once or twice a round, and the sync thread. */
#ifndef BS_CLOCK_H
#define BS_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds. */
static inline int64_t bs_clock_mono(void)
{
    struct timespec mono;
    (void)clock_gettime(CLOCK_MONOTONIC, &mono); /* cannot fail: it exists on every Linux */
    return (int64_t)mono.tv_sec * 1000000000 + mono.tv_nsec;
}

#endif
