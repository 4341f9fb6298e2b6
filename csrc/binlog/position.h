/* Positions in a binlog that one process publishes in shared memory and others read without a lock.
 *
 * A position is everything before the end of file `file`, and all files with lower numbers. It only advances. While the
 * file changes, a reader sees the end 0, or that the file has changed.
 */
#ifndef BS_POSITION_H
#define BS_POSITION_H

#include <stdbool.h>
#include <stdint.h>

static inline void bs_position_publish(uint64_t *file, uint64_t *end, uint64_t new_file, uint64_t new_end)
{
    if (*file != new_file) {
        __atomic_store_n(end, 0, __ATOMIC_RELEASE);
        __atomic_store_n(file, new_file, __ATOMIC_RELEASE);
    }
    __atomic_store_n(end, new_end, __ATOMIC_RELEASE);
}

/* Returns false while it is being changed. */
static inline bool bs_position_read(const uint64_t *file, const uint64_t *end, uint64_t *found_file, uint64_t *found_end)
{
    *found_file = __atomic_load_n(file, __ATOMIC_ACQUIRE);
    *found_end = __atomic_load_n(end, __ATOMIC_ACQUIRE);
    return __atomic_load_n(file, __ATOMIC_ACQUIRE) == *found_file;
}

#endif
