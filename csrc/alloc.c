#include "alloc.h"

#include <stdint.h>
#include <stdlib.h>

void *bs_must_realloc(void *pointer, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size)
        abort();
    void *grown = realloc(pointer, count * size);
    if (!grown)
        abort();
    return grown;
}
