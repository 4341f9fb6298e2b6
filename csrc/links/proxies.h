/* Which session here stands for which session of one other worker. Numbers only. */
#ifndef BS_PROXIES_H
#define BS_PROXIES_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t home;  /* the number of the other worker's session; 0: an empty slot */
    uint64_t proxy; /* and that of its session here, which may have ended */
} bs_proxy;

/* All zeros is an empty table. */
typedef struct {
    bs_proxy *slots;
    size_t capacity; /* a power of two, or 0; at most half full */
    size_t count;
} bs_proxies;

/* NULL when there is none. */
bs_proxy *bs_proxies_find(const bs_proxies *proxies, uint64_t home);

/* A new entry without a proxy yet. Good until the next call that adds or removes. */
bs_proxy *bs_proxies_add(bs_proxies *proxies, uint64_t home);

void bs_proxies_remove(bs_proxies *proxies, bs_proxy *entry);
void bs_proxies_free(bs_proxies *proxies);

#endif
