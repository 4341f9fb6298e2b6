/* One binlog entry as a line of text: JSON, or columns.
 *
 * docs/binlog.md documents the stable JSON keys. Times are UTC with nanoseconds, durations seconds, sizes bytes; a
 * body's size is without its CR LF.
 */
#ifndef BS_ENTRY_TEXT_H
#define BS_ENTRY_TEXT_H

#include <stdint.h>

#include "base/bytes.h"
#include "binlog_files/entry.h"

enum { BS_DUMP_TIMES = 64 };

/* The lines, and recently formatted times. Zero-initialized it is empty. */
typedef struct {
    bs_bytes out;
    struct {
        int64_t second; /* since the epoch, plus 1 */
        char text[20];
    } times[BS_DUMP_TIMES];
} bs_dump;

typedef struct {
    const char *file; /* its label */
    uint64_t offset;
    const bs_entry *entry;
    const char *tube; /* NULL: unknown */
    size_t tube_length;
} bs_dump_row;

/* 0 or -ENOMEM. */
int bs_dump_json(bs_dump *dump, const bs_dump_row *row);
int bs_dump_columns(bs_dump *dump, const bs_dump_row *row);

#endif
