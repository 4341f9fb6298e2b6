/* A histogram of nanoseconds with 128 buckets for each power of two, so that values are exact to 0.4% (half a bucket).
 * All zeros is empty. */
#ifndef BS_QUANTILES_H
#define BS_QUANTILES_H

#include <stdint.h>

enum {
    BS_QUANTILES_SUB_BITS = 7,
    BS_QUANTILES_VALUE_BITS = 42, /* over an hour; longer values are clamped */
    BS_QUANTILES_BUCKETS = (BS_QUANTILES_VALUE_BITS - BS_QUANTILES_SUB_BITS + 1) << BS_QUANTILES_SUB_BITS
};

typedef struct {
    uint64_t count;
    uint64_t sum_ns;
    uint64_t max_ns;
    uint64_t buckets[BS_QUANTILES_BUCKETS];
} bs_quantiles;

void bs_quantiles_add(bs_quantiles *quantiles, uint64_t ns, uint64_t times);
void bs_quantiles_merge(bs_quantiles *into, const bs_quantiles *from);

/* Returns the value that a share of them, 0 to 1, does not exceed; 0 without any. */
double bs_quantiles_at(const bs_quantiles *quantiles, double share);
double bs_quantiles_mean(const bs_quantiles *quantiles);

#endif
