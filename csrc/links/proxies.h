/* The local proxies for the sessions of one other worker, by number. */
#ifndef BS_PROXIES_H
#define BS_PROXIES_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t home;  /* of the other worker's session; 0: an empty slot */
    uint64_t proxy; /* of the local session, which may have ended */
} bs_proxy;

/* All zeros is an empty table. */
typedef struct {
    bs_proxy *slots;
    size_t capacity; /* a power of two, or 0; at most half full */
    size_t count;
} bs_proxies;

bs_proxy *bs_proxies_find(const bs_proxies *proxies, uint64_t home);

/* Adds an entry without a proxy, valid until the next add or remove. */
bs_proxy *bs_proxies_add(bs_proxies *proxies, uint64_t home);

void bs_proxies_remove(bs_proxies *proxies, bs_proxy *entry);
void bs_proxies_free(bs_proxies *proxies);

#endif
