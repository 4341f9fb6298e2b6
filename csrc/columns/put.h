/* Writes values into columns, in space that the caller has reserved. */
#ifndef BC_PUT_H
#define BC_PUT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "columns/columns.h"

/* Words of few different values are copied 16 bytes at a time; their column has that much space behind its last one. */
enum { BC_WORD = 16 };

typedef struct {
    char text[BC_WORD];
    int32_t length;
} bc_word;

static inline void bc_put_long(bc_batch *batch, int column, int64_t value)
{
    if (batch->columns[column].values)
        ((int64_t *)batch->columns[column].values)[batch->rows] = value;
}

static inline void bc_put_int(bc_batch *batch, int column, int32_t value)
{
    if (batch->columns[column].values)
        ((int32_t *)batch->columns[column].values)[batch->rows] = value;
}

static inline void bc_set_bit(uint8_t *bits, int64_t row)
{
    bits[row / 8] = (uint8_t)(bits[row / 8] | 1U << (row % 8));
}

static inline void bc_put_flag(bc_batch *batch, int column, bool value)
{
    if (batch->columns[column].values && value)
        bc_set_bit(batch->columns[column].values, batch->rows);
}

static inline void bc_put_some_long(bc_batch *batch, int column, bool is_there, int64_t value)
{
    bc_column *col = &batch->columns[column];
    if (!col->values)
        return;
    ((int64_t *)col->values)[batch->rows] = is_there ? value : 0;
    if (is_there)
        bc_set_bit(col->valid, batch->rows);
}

/* NULL writes a null. */
static inline void bc_put_word(bc_batch *batch, int column, const bc_word *word)
{
    bc_column *col = &batch->columns[column];
    if (!col->values)
        return;
    if (word) {
        memcpy((char *)col->values + col->used, word->text, BC_WORD);
        col->used += word->length;
        if (col->valid)
            bc_set_bit(col->valid, batch->rows);
    }
    col->ends[batch->rows + 1] = (int32_t)col->used;
}

/* Most names are short, and a memcpy call takes longer than the rest of a row. The bytes behind the name are readable
 * up to BC_WORD, but the column may have less space. */
static inline void bc_put_name(bc_batch *batch, int column, const char *name, size_t length)
{
    bc_column *col = &batch->columns[column];
    if (!col->values)
        return;
    if (name) {
        char *to = (char *)col->values + col->used;
        if (length <= BC_WORD && col->used + BC_WORD <= col->capacity)
            memcpy(to, name, BC_WORD);
        else
            memcpy(to, name, length);
        col->used += (int64_t)length;
        bc_set_bit(col->valid, batch->rows);
    }
    col->ends[batch->rows + 1] = (int32_t)col->used;
}

/* Writes text into a row of a list column. */
static inline void bc_put_text_at(bc_column *col, int64_t row, const char *text, size_t length)
{
    memcpy((char *)col->values + col->used, text, length);
    col->used += (int64_t)length;
    col->ends[row + 1] = (int32_t)col->used;
}

/* NULL writes a null. */
static inline void bc_put_text(bc_batch *batch, int column, const char *text, size_t length)
{
    bc_column *col = &batch->columns[column];
    if (!col->values)
        return;
    if (!text) {
        col->ends[batch->rows + 1] = (int32_t)col->used;
        return;
    }
    bc_put_text_at(col, batch->rows, text, length);
    if (col->valid)
        bc_set_bit(col->valid, batch->rows);
}

/* Returns whether a column has space for `more` bytes; if not, records that in the batch. */
static inline bool bc_has_space(bc_batch *batch, int column, size_t more)
{
    bc_column *col = &batch->columns[column];
    if (!col->values || col->used + (int64_t)more <= col->capacity)
        return true;
    batch->full = column;
    batch->needed = col->used + (int64_t)more;
    return false;
}

#endif
