/* Reads a binlog folder for a tool, without a lock and without changes; the interface is in api/reader.h. Positions are
 * offsets in all files together, in the order of reading. */
#ifndef BS_READER_H
#define BS_READER_H


#include "api/reader.h"
#include "binlog_files/boot_id.h"
#include "binlog_files/entry_index.h"
#include "binlog_files/entry_text.h"
#include "binlog_files/full_entries.h"
#include "binlog_files/scan.h"
#include "binlog_files/tube_names.h"

enum { BS_READ_WINDOW = 1 << 20 };

typedef struct {
    uint32_t number;
    int version;
    uint64_t base;  /* position of its first byte */
    uint64_t end;   /* bytes in use */
    bs_file_usage usage; /* set by bs_reader_tally */
} bs_read_file;

/* A skipped range. */
typedef struct {
    uint64_t at; /* position */
    uint64_t next;
} bs_read_fault;

struct bs_reader {
    int dir_fd;
    int fd; /* of the file being read, or -1 */
    bs_scan scan;
    bs_full_entries fulls; /* for single entries of any file */
    bs_index index;
    bs_names names;
    bs_read_file *files; /* in the order of reading */
    uint32_t file_count;
    size_t file_capacity;
    bs_read_fault *faults;
    uint64_t fault_count;
    size_t fault_capacity;
    bs_read_length *lengths;
    uint64_t length_count;
    size_t length_capacity;
    uint64_t *attributes; /* positions of attribute entries directly before the full entry of their job, rising */
    uint64_t attribute_count;
    size_t attribute_capacity;
    uint64_t attributes_at;   /* position of the last attribute entry, and its job */
    uint64_t attributes_of;
    bs_boot boot;
    uint64_t base; /* of the next file */
    uint64_t highest_id;
    int64_t log_time;
    bs_read_facts facts;

    bs_dump *dump; /* NULL: print nothing */
    char *label;
    bs_print selection; /* without the pointers */
    uint64_t *ids;      /* of `selection`, sorted */
    bs_names tubes;     /* of `selection` */
};

const bs_read_file *bs_reader_file_at(const bs_reader *reader, uint64_t position);

/* Decodes the entry at a position of any file, which `*scan` has in its window; it is valid until the next call.
 * Returns 0 or a negative errno, -ESTALE if there is no entry any more. */
int bs_reader_entry_at(bs_reader *reader, uint64_t position, bs_entry *entry, bs_scan **scan);

/* Finds the attributes of the job whose full entry is at a position. Returns 1, 0 if it has none, or a negative errno,
 * -ESTALE if its attribute entry is not what it was. */
int bs_reader_attributes_before(bs_reader *reader, uint64_t position, bs_entry_attributes *attributes);

#endif
