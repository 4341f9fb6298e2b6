#include "binlog/pending_reserves.h"

#include <stdlib.h>

#include "base/ring.h"

enum { SMALLEST = 64 };

static bs_untold *at(const bs_notes *notes, uint32_t index)
{
    return &notes->ring[bs_ring_at(notes->head, index, notes->capacity)];
}

static void grow(bs_notes *notes)
{
    notes->ring = bs_ring_must_grow(notes->ring, &notes->head, &notes->capacity, SMALLEST, sizeof *notes->ring);
}

void bs_notes_add(bs_notes *notes, uint64_t id, int64_t since)
{
    if (notes->count == notes->capacity)
        grow(notes);
    *at(notes, notes->count++) = (bs_untold){id, since};
}

int64_t bs_notes_first(const bs_notes *notes)
{
    return notes->count ? at(notes, 0)->since : INT64_MAX;
}

bool bs_notes_take(bs_notes *notes, int64_t until, bs_untold *untold)
{
    if (bs_notes_first(notes) > until || notes->count == 0)
        return false;
    *untold = *at(notes, 0);
    notes->head++;
    notes->count--;
    return true;
}

void bs_notes_free(bs_notes *notes)
{
    free(notes->ring);
    *notes = (bs_notes){0};
}
