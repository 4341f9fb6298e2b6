/* Reads a binlog folder for a tool, without a lock and without changes; the interface is in api/reader.h. Positions are
 * offsets in all files together, in the order of reading. */
#ifndef BS_READER_H
#define BS_READER_H

#include <stdbool.h>

#include "api/reader.h"
#include "binlog_files/boot_id.h"
#include "binlog_files/entry_index.h"
#include "binlog_files/entry_text.h"
#include "binlog_files/scan.h"
#include "binlog_files/tube_names.h"

enum { BS_READ_WINDOW = 1 << 20, BS_READ_SIDE_WINDOW = 8192, BS_READ_SIDE_FILES = 32, BS_READ_WHY = 96 };

typedef struct {
    uint32_t number;
    int version;
    uint64_t base;  /* position of its first byte */
    uint64_t end;   /* bytes in use */
    uint64_t faults; /* index in bs_reader.faults of the first one in or behind this file */
    uint64_t jobs;  /* set by bs_reader_tally */
    uint64_t live;
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
    bs_scan side; /* for single entries of other files */
    int side_fds[BS_READ_SIDE_FILES];
    uint32_t side_numbers[BS_READ_SIDE_FILES];
    bs_index index;
    bs_names names;
    bs_read_file *files; /* in the order of reading */
    uint32_t file_count;
    uint32_t file_capacity;
    bs_read_fault *faults;
    uint64_t fault_count;
    uint64_t fault_capacity;
    bs_read_length *lengths;
    uint64_t length_count;
    uint64_t length_capacity;
    bs_boot boot;
    uint64_t base; /* of the next file */
    uint64_t highest_id;
    int64_t log_time;
    bs_read_facts facts;
    char why[BS_READ_WHY];

    /* The selection to print, if any. Owned copies. */
    bs_dump *dump;
    char *label;
    bool json;
    bool some_ids;
    bool some_tubes;
    uint64_t *ids; /* sorted */
    size_t id_count;
    bs_names tubes;
    uint32_t states;
    int64_t since;
    int64_t until;
};

/* Returns the file that contains a position. */
const bs_read_file *bs_reader_file_at(const bs_reader *reader, uint64_t position);

/* Decodes the entry at a position of any file; it is valid until the next call. Returns 0 or a negative errno, -ESTALE
 * if there is no entry any more. */
int bs_reader_entry_at(bs_reader *reader, uint64_t position, bs_entry *entry);

#endif
