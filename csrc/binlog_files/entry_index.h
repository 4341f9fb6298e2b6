/* A compact map from job id to the positions of the job's entries; a folder of ten gigabytes has many million jobs.
 *
 * Ids are consecutive, so 256 of them share a page with a bit for each present job and the records in id order. A job
 * with only a full entry takes its position, 4 bytes and about half a byte of its page; a short entry takes another
 * position.
 */
#ifndef BS_INDEX_H
#define BS_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "binlog_files/entry.h"

/* The record of one job. Positions are those of the reader. */
typedef struct {
    uint64_t full;      /* position of its full entry */
    uint64_t last_short;     /* of its last short entry after that; 0: none */
    uint32_t body_size; /* bytes, or BS_INDEX_LARGE */
    uint32_t tube;      /* number of its tube, or BS_INDEX_MANY */
} bs_spot;

enum { BS_INDEX_LARGE = 0xffff, BS_INDEX_MANY = 0xffff };

typedef struct bs_index_page bs_index_page;

typedef struct {
    bs_index_page **slots; /* open addressing by page number */
    size_t pages;
    size_t capacity;
    uint64_t count; /* jobs */
    size_t width;   /* bytes of a position, 5 to 8 */
    bs_index_page *last; /* of the last lookup */
} bs_index;

/* Positions are below 1 << (8 * width). */
void bs_index_init(bs_index *index, size_t width);
void bs_index_free(bs_index *index); /* leaves it empty, ready for use */

/* Adds a job or replaces its record. Returns 0 or -ENOMEM. */
int bs_index_put(bs_index *index, uint64_t id, const bs_spot *spot);
bool bs_index_get(bs_index *index, uint64_t id, bs_spot *spot);
void bs_index_remove(bs_index *index, uint64_t id);

/* Applies an entry to its job, like recovery. `spot` is the job's record before, zeros if there is none; `tube` is the
 * number of a full entry's tube. Returns 0 or -ENOMEM. */
int bs_index_apply(bs_index *index, bs_spot *spot, const bs_entry *entry, uint64_t position, uint32_t tube);

/* Calls `call` for every job in no order, until it returns another value than 0. It may remove the job from the index,
 * but must not change the index otherwise. */
int bs_index_each(const bs_index *index, int (*call)(void *context, uint64_t id, const bs_spot *spot), void *context);

#endif
