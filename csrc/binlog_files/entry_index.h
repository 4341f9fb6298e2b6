/* Where the entries of each live job are, in as few bytes as can be: a folder of ten gigabytes has many million jobs.
 *
 * Ids come from a counter, so 256 neighbours share a page: a bit for each that is there, and their records one behind
 * the other in the order of ids. A job with nothing but a full entry costs its position and 4 bytes, about half a byte
 * for the page, and one with a short entry another position. Knows nothing of files or entries.
 */
#ifndef BS_INDEX_H
#define BS_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is known of one job. Positions are those of the reader. */
typedef struct {
    uint64_t full;      /* position of its full entry */
    uint64_t brief;     /* of its last short entry after that; 0: none */
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
    bs_index_page *last; /* looked at last */
} bs_index;

/* Positions are below 1 << (8 * width). */
void bs_index_init(bs_index *index, size_t width);
void bs_index_free(bs_index *index);

/* Adds a job or replaces what is known of it. 0 or -ENOMEM. */
int bs_index_put(bs_index *index, uint64_t id, const bs_spot *spot);
bool bs_index_get(bs_index *index, uint64_t id, bs_spot *spot);
void bs_index_remove(bs_index *index, uint64_t id);

/* Calls back for every job, in no order; the index must not be changed meanwhile. Stops at what is not 0. */
int bs_index_each(const bs_index *index, int (*call)(void *context, uint64_t id, const bs_spot *spot), void *context);

#endif
