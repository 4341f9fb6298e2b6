#include <string.h>

#include "api/types.h"

/* FNV-1a with the final mix of MurmurHash3, so that short names with different digits spread. */
static uint64_t hash_of(const char *name, size_t length)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    hash = (hash ^ hash >> 33) * UINT64_C(0xff51afd7ed558ccd);
    hash = (hash ^ hash >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return hash ^ hash >> 33;
}

/* The number of bytes before `part`; all bytes without it. An empty prefix would put all such tubes on one shard, so it
 * counts as no prefix. */
static size_t length_before(const char *name, size_t length, const char *part)
{
    const char *found = memmem(name, length, part, strlen(part));
    return found && found > name ? (size_t)(found - name) : length;
}

uint32_t bs_shard_of(const char *name, size_t length, uint32_t workers, const char *colocate)
{
    if (workers <= 1)
        return 0;
    if (colocate && *colocate)
        length = length_before(name, length, colocate);
    uint64_t key = hash_of(name, length);
    int64_t bucket = -1;
    int64_t jump = 0;
    while (jump < (int64_t)workers) {
        bucket = jump;
        key = key * UINT64_C(2862933555777941757) + 1;
        jump = (int64_t)((double)(bucket + 1) * ((double)(UINT64_C(1) << 31) / (double)((key >> 33) + 1)));
    }
    return (uint32_t)bucket;
}
