/* Adds to a bs_histogram (types.h): a few instructions, no clock, no lock. */
#ifndef BS_HISTOGRAM_H
#define BS_HISTOGRAM_H

#include "api/types.h"

/* Adds a value `times` times. A negative value, from a clock that was set back, counts as zero. */
static inline void bs_histogram_add(bs_histogram *histogram, int64_t value, uint64_t times)
{
    int bits = value <= 1 ? 0 : 64 - __builtin_clzll((unsigned long long)value - 1);
    histogram->count[bits < BS_BUCKETS ? bits : BS_BUCKETS - 1] += times;
    histogram->sum += value > 0 ? (double)value * (double)times : 0;
}

#endif
