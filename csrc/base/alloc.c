#include "base/alloc.h"

#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "api/server.h"

void *bs_must_realloc(void *pointer, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size)
        abort();
    void *grown = realloc(pointer, count * size);
    if (!grown)
        abort();
    return grown;
}

void *bs_grow(void *memory, size_t count, size_t *capacity, size_t size)
{
    enum { SMALLEST = 16 };
    if (count < *capacity)
        return memory;
    const size_t larger = *capacity ? *capacity * 2 : SMALLEST;
    void *grown = larger > SIZE_MAX / size ? NULL : realloc(memory, larger * size);
    if (grown)
        *capacity = larger;
    return grown;
}

void *bs_must_grow(void *memory, size_t count, size_t *capacity, size_t size)
{
    void *grown = bs_grow(memory, count, capacity, size);
    if (!grown)
        abort();
    return grown;
}

void *bs_must_grow_u32(void *items, uint32_t count, uint32_t *capacity, size_t size)
{
    size_t larger = *capacity;
    void *grown = bs_must_grow(items, count, &larger, size);
    if (larger > UINT32_MAX)
        abort();
    *capacity = (uint32_t)larger;
    return grown;
}

void *bs_must_alloc_lines(size_t size)
{
    enum { HUGE_PAGE = 2 << 20, MANY = 2 * HUGE_PAGE };
    void *lines;
    if (posix_memalign(&lines, size >= MANY ? HUGE_PAGE : BS_CACHE_LINE, size) != 0)
        abort();
    if (size >= MANY)
        (void)madvise(lines, size, MADV_HUGEPAGE); /* a hint; EINVAL without huge pages */
    return lines;
}

void bs_trim_memory(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0); /* returns whether it released any, which is no error */
#endif
}
