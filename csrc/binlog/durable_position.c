#include "binlog/durable_position.h"

/* Whoever reads a file between two of these has an end of zero or sees that the file has changed. */
void bs_durable_position_set(bs_counters *counters, uint64_t file, uint64_t end)
{
    if (counters->binlog_durable_file != file) {
        __atomic_store_n(&counters->binlog_durable_end, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&counters->binlog_durable_file, file, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&counters->binlog_durable_end, end, __ATOMIC_RELEASE);
}

int bs_durable_position(const bs_counters *counters, uint64_t *file, uint64_t *end)
{
    *file = __atomic_load_n(&counters->binlog_durable_file, __ATOMIC_ACQUIRE);
    *end = __atomic_load_n(&counters->binlog_durable_end, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&counters->binlog_durable_file, __ATOMIC_ACQUIRE) == *file;
}
