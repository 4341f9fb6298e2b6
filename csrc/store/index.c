/* One index file, byte for byte RocketMQ's IndexFile: header, slots, entries linked by slot. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "store/order.h"
#include "store/store.h"

enum { AT_PREVIOUS = 16, AHEAD = 8 };

static char *slot_at(const char *index, int32_t slot)
{
    return (char *)index + HS_INDEX_HEADER + (size_t)slot * 4;
}

static char *entry_at(const char *index, int32_t slots, int32_t entry)
{
    return slot_at(index, slots) + (size_t)entry * HS_INDEX_ENTRY;
}

int64_t hs_index_bytes(int32_t slots, int32_t entries)
{
    return HS_INDEX_HEADER + (int64_t)slots * 4 + (int64_t)entries * HS_INDEX_ENTRY;
}

void hs_index_read_header(const char *index, hs_index_header *header)
{
    *header = (hs_index_header){
        .begin_timestamp = hs_get64(index),
        .end_timestamp = hs_get64(index + 8),
        .begin_offset = hs_get64(index + 16),
        .end_offset = hs_get64(index + 24),
        .used_slots = hs_get32(index + 32),
        .next_entry = hs_get32(index + 36),
    };
    if (header->next_entry < 1)
        header->next_entry = 1; /* a new file has zeros */
}

void hs_index_write_header(char *index, const hs_index_header *header)
{
    hs_put64(index, header->begin_timestamp);
    hs_put64(index + 8, header->end_timestamp);
    hs_put64(index + 16, header->begin_offset);
    hs_put64(index + 24, header->end_offset);
    hs_put32(index + 32, header->used_slots);
    hs_put32(index + 36, header->next_entry);
}

/* Returns seconds since the beginning of the file. The first entry of a second file counts from the end of the previous
 * one, because its header has that value until the entry is added. */
static int32_t time_of_key(int64_t begin, int64_t timestamp)
{
    int64_t seconds = begin > 0 ? (timestamp - begin) / 1000 : 0;
    return seconds < 0 ? 0 : seconds > INT32_MAX ? INT32_MAX : (int32_t)seconds;
}

static bool is_entry(int32_t number, int32_t next_entry)
{
    return number > 0 && number < next_entry;
}

int64_t hs_index_put(char *index, int32_t slots, int32_t entries, const hs_key *keys, int64_t count)
{
    hs_index_header header;
    hs_index_read_header(index, &header);
    int64_t done = 0;
    for (; done < count && header.next_entry < entries; done++) {
        if (done + AHEAD < count) /* slots are accessed in random order */
            __builtin_prefetch(slot_at(index, keys[done + AHEAD].hash % slots), 1);
        const hs_key *key = &keys[done];
        char *slot = slot_at(index, key->hash % slots);
        char *entry = entry_at(index, slots, header.next_entry);
        int32_t previous = hs_get32(slot);
        if (!is_entry(previous, header.next_entry))
            previous = 0;
        hs_put32(entry, key->hash);
        hs_put64(entry + 4, key->offset);
        hs_put32(entry + 12, time_of_key(header.begin_timestamp, key->store_timestamp));
        hs_put32(entry + AT_PREVIOUS, previous);
        hs_put32(slot, header.next_entry);
        if (header.next_entry == 1) {
            header.begin_offset = key->offset;
            header.begin_timestamp = key->store_timestamp;
        }
        header.used_slots += previous == 0;
        header.next_entry++;
        header.end_offset = key->offset;
        header.end_timestamp = key->store_timestamp;
    }
    if (done > 0)
        hs_index_write_header(index, &header);
    return done;
}

/* Writes zeros without dirtying pages that are zero. */
static void clear(char *from, const char *to)
{
    static const char zeros[4096];
    while (from < to) {
        size_t left = (size_t)(to - from);
        size_t piece = left < sizeof zeros ? left : sizeof zeros;
        if (memcmp(from, zeros, piece) != 0)
            memset(from, 0, piece);
        from += piece;
    }
}

int hs_index_rewind(char *index, int32_t slots, int32_t entries, const hs_index_header *header)
{
    if (header->next_entry < 1 || header->next_entry > entries || header->used_slots < 0 || header->used_slots > slots)
        return -EINVAL;
    clear(entry_at(index, slots, header->next_entry), index + hs_index_bytes(slots, entries));
    clear(slot_at(index, 0), slot_at(index, slots));
    for (int32_t entry = 1; entry < header->next_entry; entry++) {
        int32_t hash = hs_get32(entry_at(index, slots, entry));
        if (hash < 0)
            return -EINVAL;
        hs_put32(slot_at(index, hash % slots), entry);
    }
    hs_index_header state = *header;
    if (state.next_entry == 1)
        state.next_entry = 0; /* like a new file */
    hs_index_write_header(index, &state);
    return 0;
}

int64_t hs_index_find(const char *index, int32_t slots, int32_t entries, int32_t hash, int64_t begin, int64_t end,
                      int64_t *offsets, int64_t most, int32_t *cursor)
{
    hs_index_header header;
    hs_index_read_header(index, &header);
    int32_t number = *cursor > 0 ? *cursor : hs_get32(slot_at(index, hash % slots));
    int32_t above = entries; /* not the header's: a writer may be linking an entry */
    int64_t found = 0;
    *cursor = -1;
    while (is_entry(number, above)) {
        if (found == most) {
            *cursor = number;
            return found;
        }
        const char *entry = entry_at(index, slots, number);
        int64_t at = header.begin_timestamp + (int64_t)hs_get32(entry + 12) * 1000;
        if (number == 1)
            at = header.begin_timestamp; /* its own seconds count from the previous file */
        if (hs_get32(entry) == hash && begin <= at && at <= end)
            offsets[found++] = hs_get64(entry + 4);
        above = number;
        number = hs_get32(entry + AT_PREVIOUS);
    }
    return number == 0 ? found : -EINVAL;
}

int hs_index_check(const char *index, int32_t slots, int32_t entries, int64_t *at)
{
    hs_index_header header;
    hs_index_read_header(index, &header);
    *at = 0;
    if (header.next_entry > entries || header.used_slots < 0 || header.used_slots > slots)
        return HS_INDEX_HEADER_WRONG;
    int32_t *newest = calloc((size_t)slots, sizeof *newest);
    if (!newest)
        return -ENOMEM;
    int result = HS_INDEX_SOUND;
    int32_t used = 0;
    for (int32_t number = 1; number < header.next_entry && !result; number++) {
        const char *entry = entry_at(index, slots, number);
        int32_t hash = hs_get32(entry);
        *at = entry - index;
        if (hash < 0) {
            result = HS_INDEX_ENTRY_WRONG;
        } else if (hs_get32(entry + AT_PREVIOUS) != newest[hash % slots]) {
            result = HS_INDEX_LINK_WRONG;
        } else {
            used += newest[hash % slots] == 0;
            newest[hash % slots] = number;
        }
    }
    for (int32_t slot = 0; slot < slots && !result; slot++) {
        *at = slot_at(index, slot) - index;
        if (hs_get32(slot_at(index, slot)) != newest[slot])
            result = HS_INDEX_SLOT_WRONG;
    }
    free(newest);
    if (!result && used != header.used_slots) {
        *at = 32;
        result = HS_INDEX_HEADER_WRONG;
    }
    return result;
}

int hs_index_compare(const char *index, int32_t slots, int32_t entries, const hs_key *keys, int64_t count,
                     hs_index_comparison *comparison)
{
    hs_index_header header;
    hs_index_read_header(index, &header);
    int32_t end = header.next_entry < entries ? header.next_entry : entries;
    comparison->key = 0;
    while (comparison->key < count && comparison->entry < end) {
        const hs_key *key = &keys[comparison->key];
        const char *entry = entry_at(index, slots, comparison->entry);
        int64_t begin = comparison->entry == 1 ? comparison->previous_end : header.begin_timestamp;
        comparison->at = entry - index;
        if (hs_get32(entry) != key->hash || hs_get64(entry + 4) != key->offset ||
            hs_get32(entry + 12) != time_of_key(begin, key->store_timestamp))
            return HS_INDEX_ENTRY_WRONG;
        comparison->entry++;
        comparison->key++;
    }
    return HS_INDEX_SOUND;
}
