#include "load/quantiles.h"

#include <stddef.h>

enum { SUB_BITS = BS_QUANTILES_SUB_BITS, SUB_COUNT = 1 << SUB_BITS };

static size_t bucket_of(uint64_t ns)
{
    const uint64_t top = (UINT64_C(1) << BS_QUANTILES_VALUE_BITS) - 1;
    const uint64_t value = ns < top ? ns : top;
    if (value < SUB_COUNT)
        return (size_t)value;
    const unsigned shift = 63U - (unsigned)__builtin_clzll(value) - SUB_BITS;
    return (size_t)((shift + 1U) * SUB_COUNT + ((value >> shift) & (SUB_COUNT - 1)));
}

static double middle_of(size_t bucket)
{
    if (bucket < SUB_COUNT)
        return (double)bucket;
    const unsigned shift = (unsigned)(bucket / SUB_COUNT) - 1U;
    const uint64_t low = (uint64_t)(SUB_COUNT + bucket % SUB_COUNT) << shift;
    return (double)low + (double)(UINT64_C(1) << shift) / 2.0;
}

void bs_quantiles_add(bs_quantiles *quantiles, uint64_t ns, uint64_t times)
{
    quantiles->count += times;
    quantiles->buckets[bucket_of(ns)] += times;
    quantiles->sum_ns += ns * times;
    if (ns > quantiles->max_ns)
        quantiles->max_ns = ns;
}

void bs_quantiles_merge(bs_quantiles *into, const bs_quantiles *from)
{
    into->count += from->count;
    into->sum_ns += from->sum_ns;
    if (from->max_ns > into->max_ns)
        into->max_ns = from->max_ns;
    for (size_t i = 0; i < BS_QUANTILES_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
}

double bs_quantiles_at(const bs_quantiles *quantiles, double share)
{
    const double wanted = share * (double)quantiles->count;
    uint64_t seen = 0;
    for (size_t i = 0; i < BS_QUANTILES_BUCKETS; i++) {
        seen += quantiles->buckets[i];
        if (quantiles->buckets[i] > 0 && (double)seen >= wanted) {
            const double middle = middle_of(i);
            return middle < (double)quantiles->max_ns ? middle : (double)quantiles->max_ns;
        }
    }
    return 0.0;
}

double bs_quantiles_mean(const bs_quantiles *quantiles)
{
    return quantiles->count ? (double)quantiles->sum_ns / (double)quantiles->count : 0.0;
}
