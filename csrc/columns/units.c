/* Converts units of a consume queue and entries of an index file to columns. */
#include <errno.h>

#include "columns/columns.h"
#include "store/order.h"
#include "columns/put.h"
#include "store/store.h"

enum { FILLER_SIZE = INT32_MAX, SLOT = 4, FIRST_ENTRY = 1, US_PER_S = 1000000, US_PER_MS = 1000 };

int bc_units_read(const char *data, size_t length, int64_t first, int64_t *at, bc_batch *batch)
{
    for (; *at + HS_UNIT <= (int64_t)length; *at += HS_UNIT) {
        const char *unit = data + *at;
        int64_t offset = hs_get64(unit);
        int32_t size = hs_get32(unit + 8);
        if (size <= 0 || size == FILLER_SIZE || offset < 0)
            continue;
        if (batch->rows == batch->capacity)
            return BC_MORE;
        bc_put_long(batch, BC_UNIT_OFFSET, offset);
        bc_put_int(batch, BC_UNIT_SIZE, size);
        bc_put_long(batch, BC_UNIT_TAG_CODE, hs_get64(unit + 12));
        bc_put_long(batch, BC_UNIT_NUMBER, first + *at / HS_UNIT);
        batch->rows++;
    }
    return BC_END;
}

int bc_index_read(const char *data, size_t length, int32_t slots, int32_t entries, int32_t *at, bc_batch *batch)
{
    if (slots <= 0 || entries <= 0 || hs_index_bytes(slots, entries) != (int64_t)length)
        return -EINVAL;
    hs_index_header header;
    hs_index_read_header(data, &header);
    int32_t end = header.next_entry < entries ? header.next_entry : entries;
    const char *first = data + HS_INDEX_HEADER + (int64_t)slots * SLOT;
    for (*at = *at < FIRST_ENTRY ? FIRST_ENTRY : *at; *at < end; ++*at) {
        if (batch->rows == batch->capacity)
            return BC_MORE;
        const char *entry = first + (int64_t)*at * HS_INDEX_ENTRY;
        int32_t hash = hs_get32(entry);
        int64_t stored = header.begin_timestamp * US_PER_MS + (int64_t)hs_get32(entry + 12) * US_PER_S;
        bc_put_int(batch, BC_INDEX_NUMBER, *at);
        bc_put_int(batch, BC_INDEX_SLOT, hash < 0 ? -1 : hash % slots);
        bc_put_int(batch, BC_INDEX_HASH, hash);
        bc_put_long(batch, BC_INDEX_OFFSET, hs_get64(entry + 4));
        bc_put_long(batch, BC_INDEX_STORED, stored);
        bc_put_int(batch, BC_INDEX_PREVIOUS, hs_get32(entry + 16));
        batch->rows++;
    }
    return BC_END;
}
