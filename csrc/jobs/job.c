#include "jobs/job.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST = 64, GROUP = 8, FAR = 255 };

const bs_heap_kind bs_job_kind = {offsetof(bs_job, place), offsetof(bs_job, id)};

static size_t record_size(uint32_t body_size, bool separate)
{
    if (separate)
        return sizeof(bs_job) + sizeof(bs_body_place);
    const size_t size = offsetof(bs_job, inline_body) + body_size;
    return size > sizeof(bs_job) ? size : sizeof(bs_job);
}

/* Returns the offset of the attributes. */
static size_t attributes_at(uint32_t body_size, bool separate)
{
    const size_t unit = _Alignof(bs_job_attributes);
    return (record_size(body_size, separate) + unit - 1) / unit * unit;
}

bs_job_attributes *bs_job_attributes_of(const bs_job *job)
{
    assert(job->has_attributes);
    return (bs_job_attributes *)((char *)job + attributes_at(job->body_size, job->separate));
}

bool bs_job_key_is_set(const bs_job *job)
{
    static const uint8_t none[BS_KEY_BYTES];
    return memcmp(bs_job_attributes_of(job)->key, none, BS_KEY_BYTES) != 0;
}

static size_t size_with_attributes(uint32_t body_size, bool separate)
{
    return attributes_at(body_size, separate) + sizeof(bs_job_attributes);
}

bs_job *bs_job_new(uint64_t id, uint32_t body_size, bool separate, bool attributes)
{
    bs_job *job = malloc(attributes ? size_with_attributes(body_size, separate) : record_size(body_size, separate));
    if (!job)
        return NULL;
    memset(job, 0, separate ? record_size(body_size, true) : offsetof(bs_job, inline_body));
    job->id = id;
    job->body_size = body_size;
    job->place = BS_NO_PLACE;
    job->separate = separate;
    job->has_attributes = attributes;
    if (attributes)
        *bs_job_attributes_of(job) = (bs_job_attributes){.expires = 0};
    return job;
}

void bs_job_free(bs_job *job)
{
    if (job && job->separate)
        free(bs_job_body_place(job)->loaded);
    free(job);
}

/* With malloc's header and unit, and the entries that point to the job. */
static uint64_t memory_of(size_t size)
{
    enum { HEADER = 8, UNIT = 16, ENTRIES = 22 };
    return ((uint64_t)size + HEADER + UNIT - 1) / UNIT * UNIT + ENTRIES;
}

uint64_t bs_job_bytes(uint32_t body_size)
{
    return memory_of(offsetof(bs_job, inline_body) + body_size);
}

uint64_t bs_job_record_bytes(const bs_job *job)
{
    enum { KEY_ENTRY = 32 }; /* in the table of keys, which is half full */
    if (job->has_attributes)
        return memory_of(size_with_attributes(job->body_size, job->separate)) + KEY_ENTRY;
    return job->separate ? memory_of(record_size(0, true)) : bs_job_bytes(job->body_size);
}

int bs_job_compare_ids(const void *a, const void *b)
{
    const bs_job *x = *(bs_job *const *)a;
    const bs_job *y = *(bs_job *const *)b;
    return (x->id > y->id) - (x->id < y->id);
}

int bs_job_compare_buried(const void *a, const void *b)
{
    const bs_job *x = *(bs_job *const *)a;
    const bs_job *y = *(bs_job *const *)b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : bs_job_compare_ids(a, b);
}

/* Ids are sequential and jobs mostly leave in that sequence, so eight consecutive ids share a cache line. The groups
 * are spread by the golden ratio, because an identity hash would turn a long-lived block of ids into one cluster. The
 * upper half of the product is scaled to the capacity, which need not be a power of two, so the table grows in small
 * steps. */
static size_t home(const bs_job_table *table, uint64_t id)
{
    uint64_t spread = ((id / GROUP) * UINT64_C(0x9E3779B97F4A7C15)) >> 32;
    return (size_t)((spread * (table->capacity / GROUP)) >> 32) * GROUP + id % GROUP;
}

static size_t after(const bs_job_table *table, size_t slot)
{
    return slot + 1 < table->capacity ? slot + 1 : 0;
}

/* The distance of `slot` after `from`, modulo the capacity. */
static size_t distance(const bs_job_table *table, size_t from, size_t slot)
{
    return slot >= from ? slot - from : slot + table->capacity - from;
}

static uint8_t as_stray(size_t distance_home)
{
    return (uint8_t)(distance_home < FAR ? distance_home : FAR);
}

/* The slot of this id, or the empty slot where the search ends. */
static size_t seek(const bs_job_table *table, uint64_t id)
{
    size_t stray = 0;
    size_t slot = home(table, id);
    for (; table->slots[slot]; slot = after(table, slot), stray++)
        if (table->strays[slot] == as_stray(stray) && table->slots[slot]->id == id)
            break;
    return slot;
}

/* As seek, but without a search if this id was found last and has not moved. */
static size_t seek_again(const bs_job_table *table, uint64_t id)
{
    const bs_job *there = id == table->known_id ? table->slots[table->known_at] : NULL;
    return there && there->id == id ? table->known_at : seek(table, id);
}

bs_job *bs_job_table_find(const bs_job_table *table, uint64_t id)
{
    return table->capacity ? table->slots[seek_again(table, id)] : NULL;
}

bs_job *bs_job_table_seek(bs_job_table *table, uint64_t id)
{
    if (table->capacity == 0)
        return NULL;
    table->known_at = seek_again(table, id);
    table->known_id = id;
    return table->slots[table->known_at];
}

void bs_job_table_prefetch(const bs_job_table *table, uint64_t id)
{
    if (table->capacity == 0)
        return;
    size_t slot = home(table, id);
    __builtin_prefetch(&table->slots[slot]);
    __builtin_prefetch(&table->strays[slot]);
}

void bs_job_table_prefetch_job(const bs_job_table *table, uint64_t id)
{
    if (table->capacity == 0)
        return;
    size_t slot = home(table, id);
    for (size_t stray = 0; table->slots[slot] && table->strays[slot] != as_stray(stray); stray++)
        slot = after(table, slot);
    bs_job_prefetch(table->slots[slot]);
}

static void place(bs_job_table *table, bs_job *job)
{
    size_t stray = 0;
    size_t slot = home(table, job->id);
    for (; table->slots[slot]; slot = after(table, slot))
        stray++;
    table->slots[slot] = job;
    table->strays[slot] = as_stray(stray);
}

static int resize(bs_job_table *table, size_t capacity)
{
    bs_job_table grown = {calloc(capacity, sizeof *grown.slots), calloc(capacity, 1), table->count, capacity, 0, 0};
    if (!grown.slots || !grown.strays || capacity > UINT32_MAX) {
        bs_job_table_free(&grown);
        return -ENOMEM;
    }
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i])
            place(&grown, table->slots[i]);
    bs_job_table_free(table);
    *table = grown;
    return 0;
}

int bs_job_table_add(bs_job_table *table, bs_job *job)
{
    if (table->count + 1 > table->capacity / 5 * 4) {
        int error = resize(table, table->capacity ? table->capacity / (2 * GROUP) * (3 * GROUP) : SMALLEST);
        if (error)
            return error;
    }
    place(table, job);
    table->count++;
    return 0;
}

void bs_job_table_remove(bs_job_table *table, const bs_job *job)
{
    size_t hole = seek_again(table, job->id);
    assert(table->slots[hole] == job);
    /* Later jobs move back into the hole unless their home is after it. */
    for (size_t i = after(table, hole); table->slots[i]; i = after(table, i)) {
        size_t gap = distance(table, hole, i);
        size_t stray = table->strays[i];
        if (stray == FAR)
            stray = distance(table, home(table, table->slots[i]->id), i);
        if (stray >= gap) {
            table->slots[hole] = table->slots[i];
            table->strays[hole] = as_stray(stray - gap);
            hole = i;
        }
    }
    table->slots[hole] = NULL;
    table->count--;
    /* Without memory the table stays larger than needed. */
    if (table->capacity > SMALLEST && table->count < table->capacity / 8)
        (void)resize(table, table->capacity / (2 * GROUP) * GROUP);
}

void bs_job_table_free(bs_job_table *table)
{
    free(table->slots);
    free(table->strays);
    *table = (bs_job_table){0};
}
