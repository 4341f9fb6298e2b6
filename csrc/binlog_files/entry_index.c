#include "binlog_files/entry_index.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { IDS = 256, WORDS = IDS / 64, FIRST_PAGES = 64, FIRST_RECORDS = 8, SIZES = 4 };

/* Consecutive records, one for each bit that is set. */
typedef struct {
    uint64_t bits[WORDS];
    uint8_t *records;
    uint16_t count;
    uint16_t capacity;
} column;

struct bs_index_page {
    uint64_t number; /* of its ids, without the lowest 8 bits */
    column full;     /* position, body size, tube */
    column last_short;    /* position */
};

static bool has(const column *col, unsigned bit)
{
    return col->bits[bit / 64] >> (bit % 64) & 1;
}

/* Counts the records before it. Ids mostly arrive in order, so the fast path is that none follow. */
static size_t rank(const column *col, unsigned bit)
{
    uint64_t from_here = col->bits[bit / 64] >> (bit % 64);
    for (unsigned word = bit / 64 + 1; word < WORDS; word++)
        from_here |= col->bits[word];
    if (from_here == 0)
        return col->count;
    size_t before = 0;
    for (unsigned word = 0; word < bit / 64; word++)
        before += (size_t)__builtin_popcountll(col->bits[word]);
    return before + (size_t)__builtin_popcountll(col->bits[bit / 64] & ((UINT64_C(1) << (bit % 64)) - 1));
}

static int resize(column *col, size_t capacity, size_t record)
{
    uint8_t *records = realloc(col->records, capacity * record);
    if (!records)
        return -ENOMEM;
    col->records = records;
    col->capacity = (uint16_t)capacity;
    return 0;
}

/* Returns the record of this id, created if needed. NULL: no memory. */
static uint8_t *set(column *col, unsigned bit, size_t record)
{
    size_t at = rank(col, bit);
    if (has(col, bit))
        return col->records + at * record;
    if (col->count == col->capacity) {
        size_t step = col->capacity < 4 * FIRST_RECORDS ? FIRST_RECORDS : 4 * FIRST_RECORDS;
        size_t wanted = col->capacity + step;
        if (resize(col, wanted < IDS ? wanted : IDS, record) != 0)
            return NULL;
    }
    uint8_t *at_record = col->records + at * record;
    memmove(at_record + record, at_record, (col->count - at) * record);
    col->count++;
    col->bits[bit / 64] |= UINT64_C(1) << (bit % 64);
    return at_record;
}

static void drop(column *col, unsigned bit, size_t record)
{
    if (!has(col, bit))
        return;
    size_t at = rank(col, bit);
    uint8_t *at_record = col->records + at * record;
    col->count--;
    memmove(at_record, at_record + record, (col->count - at) * record);
    col->bits[bit / 64] &= ~(UINT64_C(1) << (bit % 64));
    if (col->count == 0) {
        free(col->records);
        col->records = NULL;
        col->capacity = 0;
    } else if (col->capacity > 4 * FIRST_RECORDS && col->count < col->capacity / 2) {
        (void)resize(col, col->count + FIRST_RECORDS, record); /* a larger allocation is harmless */
    }
}

static size_t home_of(uint64_t number, size_t capacity)
{
    return (size_t)(number * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (capacity - 1);
}

static bs_index_page *find_page(bs_index *index, uint64_t number)
{
    if (index->last && index->last->number == number)
        return index->last;
    if (index->capacity == 0)
        return NULL;
    for (size_t at = home_of(number, index->capacity); index->slots[at]; at = (at + 1) & (index->capacity - 1))
        if (index->slots[at]->number == number)
            return index->last = index->slots[at];
    return NULL;
}

static void place_page(bs_index_page **slots, size_t capacity, bs_index_page *page)
{
    size_t at = home_of(page->number, capacity);
    while (slots[at])
        at = (at + 1) & (capacity - 1);
    slots[at] = page;
}

static int grow(bs_index *index)
{
    size_t capacity = index->capacity ? index->capacity * 2 : FIRST_PAGES;
    bs_index_page **slots = calloc(capacity, sizeof(bs_index_page *));
    if (!slots)
        return -ENOMEM;
    for (size_t i = 0; i < index->capacity; i++)
        if (index->slots[i])
            place_page(slots, capacity, index->slots[i]);
    free(index->slots);
    index->slots = slots;
    index->capacity = capacity;
    return 0;
}

static bs_index_page *add_page(bs_index *index, uint64_t number)
{
    if (index->pages * 4 >= index->capacity * 3 && grow(index) != 0)
        return NULL;
    bs_index_page *page = calloc(1, sizeof *page);
    if (!page)
        return NULL;
    page->number = number;
    place_page(index->slots, index->capacity, page);
    index->pages++;
    return index->last = page;
}

static void free_page(bs_index_page *page)
{
    free(page->full.records);
    free(page->last_short.records);
    free(page);
}

/* Linear probing without tombstones: later pages move up. */
static void remove_page(bs_index *index, bs_index_page *page)
{
    size_t mask = index->capacity - 1;
    size_t hole = home_of(page->number, index->capacity);
    while (index->slots[hole] != page)
        hole = (hole + 1) & mask;
    for (size_t at = (hole + 1) & mask; index->slots[at]; at = (at + 1) & mask) {
        size_t home = home_of(index->slots[at]->number, index->capacity);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            index->slots[hole] = index->slots[at];
            hole = at;
        }
    }
    index->slots[hole] = NULL;
    index->pages--;
    if (index->last == page)
        index->last = NULL;
    free_page(page);
}

static void take_spot(const bs_index *index, const bs_index_page *page, unsigned bit, bs_spot *spot)
{
    const uint8_t *record = page->full.records + rank(&page->full, bit) * (index->width + SIZES);
    *spot = (bs_spot){0};
    memcpy(&spot->full, record, index->width); /* little-endian: the upper bytes are zero */
    memcpy(&spot->body_size, record + index->width, 2);
    memcpy(&spot->tube, record + index->width + 2, 2);
    if (has(&page->last_short, bit))
        memcpy(&spot->last_short, page->last_short.records + rank(&page->last_short, bit) * index->width,
               index->width);
}

void bs_index_init(bs_index *index, size_t width)
{
    *index = (bs_index){.width = width};
}

void bs_index_free(bs_index *index)
{
    for (size_t i = 0; i < index->capacity; i++)
        if (index->slots[i])
            free_page(index->slots[i]);
    free(index->slots);
    *index = (bs_index){.width = index->width};
}

bool bs_index_get(bs_index *index, uint64_t id, bs_spot *spot)
{
    const bs_index_page *page = find_page(index, id / IDS);
    if (!page || !has(&page->full, id % IDS))
        return false;
    take_spot(index, page, id % IDS, spot);
    return true;
}

int bs_index_put(bs_index *index, uint64_t id, const bs_spot *spot)
{
    assert(index->width >= 8 || (spot->full >> (8 * index->width) == 0 && spot->last_short >> (8 * index->width) == 0));
    unsigned bit = id % IDS;
    bs_index_page *page = find_page(index, id / IDS);
    if (!page && !(page = add_page(index, id / IDS)))
        return -ENOMEM;
    bool new = !has(&page->full, bit);
    uint8_t *last_short = spot->last_short ? set(&page->last_short, bit, index->width) : NULL;
    uint8_t *full = spot->last_short && !last_short ? NULL : set(&page->full, bit, index->width + SIZES);
    if (!full) {
        if (page->full.count == 0)
            remove_page(index, page);
        return -ENOMEM;
    }
    memcpy(full, &spot->full, index->width);
    memcpy(full + index->width, &spot->body_size, 2);
    memcpy(full + index->width + 2, &spot->tube, 2);
    if (last_short)
        memcpy(last_short, &spot->last_short, index->width);
    else if (page->last_short.count > 0)
        drop(&page->last_short, bit, index->width);
    index->count += new;
    return 0;
}

void bs_index_remove(bs_index *index, uint64_t id)
{
    bs_index_page *page = find_page(index, id / IDS);
    if (!page || !has(&page->full, id % IDS))
        return;
    drop(&page->full, id % IDS, index->width + SIZES);
    drop(&page->last_short, id % IDS, index->width);
    index->count--;
    if (page->full.count == 0)
        remove_page(index, page);
}

int bs_index_apply(bs_index *index, bs_spot *spot, const bs_entry *entry, uint64_t position, uint32_t tube)
{
    if (entry->state == BS_INVALID) {
        bs_index_remove(index, entry->id);
        return 0;
    }
    if (entry->name_length > 0)
        *spot = (bs_spot){.full = position,
                          .body_size = entry->body_size < BS_INDEX_LARGE ? entry->body_size : BS_INDEX_LARGE,
                          .tube = tube};
    else if (spot->full == 0)
        return 0;
    else
        spot->last_short = position;
    return bs_index_put(index, entry->id, spot);
}

int bs_index_each(const bs_index *index, int (*call)(void *context, uint64_t id, const bs_spot *spot), void *context)
{
    for (size_t i = 0; i < index->capacity; i++) {
        const bs_index_page *page = index->slots[i];
        for (unsigned bit = 0; page && bit < IDS; bit++) {
            if (!has(&page->full, bit))
                continue;
            bs_spot spot;
            take_spot(index, page, bit, &spot);
            int result = call(context, page->number * IDS + bit, &spot);
            if (result != 0)
                return result;
            if (index->slots[i] != page) { /* it was the last job of the page, and a later page has moved up */
                i--;
                break;
            }
        }
    }
    return 0;
}
