/* One binlog entry as a line: JSON for machines, columns for people.
 *
 * The keys of the JSON are documented in docs/binlog.md and do not change. Times are UTC with nanoseconds, durations
 * seconds, sizes bytes; a body's size is without its CR LF, as clients count.
 */
#ifndef BS_DUMP_H
#define BS_DUMP_H

#include <stdint.h>

#include "base/bytes.h"
#include "binlog_files/entry.h"

enum { BS_DUMP_TIMES = 64 };

/* The lines, and times that were written lately. All zeros is an empty one. */
typedef struct {
    bs_bytes out;
    struct {
        int64_t second; /* since the epoch, plus 1 */
        char text[19];
    } times[BS_DUMP_TIMES];
} bs_dump;

typedef struct {
    const char *file; /* as it is to be called */
    uint64_t offset;
    const bs_entry *entry;
    const char *tube; /* NULL: not known */
    size_t tube_length;
} bs_dump_row;

/* 0 or -ENOMEM. */
int bs_dump_json(bs_dump *dump, const bs_dump_row *row);
int bs_dump_columns(bs_dump *dump, const bs_dump_row *row);

#endif
