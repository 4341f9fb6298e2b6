/* CRC-32 as in zlib: the checksum of a body and of a record. */
#include "base/crc32c.h"
#include "store/store.h"

static bs_crc_table table;

/* When the library is loaded, before any thread runs. */
__attribute__((constructor)) static void prepare(void)
{
    bs_crc_fill(table, 0xEDB88320U);
}

uint32_t hs_crc32(uint32_t crc, const char *data, size_t length)
{
    return ~bs_crc_update(table, ~crc, data, length);
}
