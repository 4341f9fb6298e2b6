/* The binlog files of a folder read without a server, and rewritten. */
#ifndef BS_API_READER_H
#define BS_API_READER_H

#include "api/types.h"

/* cdef begin */

/* Reads all files of one folder, oldest first, and indexes the entries of live jobs. It takes no lock and changes
 * nothing, so a server may be running there. Memory: two windows of files and about 10 bytes for each live job, 5 more
 * if it has a short entry (entry_index.h). */
typedef struct bs_reader bs_reader;

/* Results of bs_reader_open. */
enum { BS_FILE_EMPTY, BS_FILE_ENTRIES, BS_FILE_VERSION };

/* Why bs_reader_run has returned. */
enum { BS_READ_END, BS_READ_MORE, BS_READ_FAULT };

/* The file that was opened last. */
typedef struct {
    uint32_t number;
    int version;
    uint64_t size;   /* bytes of the file */
    uint64_t offset; /* of the next read */
    uint64_t end;    /* of its last entry */
    uint64_t full_entries;
    uint64_t short_entries;
    uint64_t lengths;  /* of these, length entries */
    uint64_t attributes; /* attribute entries before the full entry of their job, and ended keys */
    uint64_t at;       /* of the fault */
    uint64_t next;     /* the next valid entry, or `size` */
    bool torn;         /* the fault is an incomplete entry at the end */
    const char *fault; /* valid until the next run */
} bs_read_facts;

/* A length entry: where the entries of an earlier file ended when it was complete. */
typedef struct {
    uint32_t number;  /* of the earlier file */
    uint32_t stated_in; /* of the file with the length entry */
    uint64_t length;  /* bytes */
    bool outdated;    /* the entries were not synced then, and the system has been booted since */
} bs_read_length;

/* One file after bs_reader_tally. */
typedef struct {
    uint32_t number;
    uint64_t jobs;       /* live, with their full entry here */
    uint64_t live_bytes; /* full and last short entries of live jobs */
} bs_file_usage;

/* Which entries to print. Strings are copied. */
typedef struct {
    int json;             /* 0: columns */
    const uint64_t *ids;  /* none: all */
    size_t id_count;
    const char *const *tubes; /* none: all */
    size_t tube_count;
    unsigned states;      /* 1 << state */
    int64_t since;        /* wall; an entry without a time has that of the last entry with one */
    int64_t until;        /* exclusive */
} bs_print;

/* `width` is the bytes of a position, 5 to 8: the folder has less than 1 << (8 * width) bytes. 0 or a negative errno;
 * after 0 the caller owns *created. bs_reader_free ignores NULL. */
int bs_reader_new(const char *folder, int width, bs_reader **created);
void bs_reader_free(bs_reader *reader);

/* Makes bs_reader_run print entries; bs_reader_text has the text. 0 or -ENOMEM. */
int bs_reader_print(bs_reader *reader, const bs_print *print);

/* Returns the text of the last bs_reader_run, valid until the next. */
const char *bs_reader_text(bs_reader *reader, size_t *length);

/* Opens binlog.<number>, printed as `label`. Returns a BS_FILE_ value or a negative errno. */
int bs_reader_open(bs_reader *reader, uint32_t number, const char *label);

/* Reads `budget` bytes, fewer if there is much text. Returns a BS_READ_ value or -ENOMEM. It stops at a fault. */
int bs_reader_run(bs_reader *reader, uint64_t budget);

/* Continues behind the fault. 0 or -ENOMEM. */
int bs_reader_skip_fault(bs_reader *reader);

/* Reads the size of the open file again, because a server writes to it. 0 or a negative errno. */
int bs_reader_refresh(bs_reader *reader);

/* Drops all jobs read so far, because the files of their full entries were removed. */
void bs_reader_forget(bs_reader *reader);

/* Returns the results of the last bs_reader_open or bs_reader_run, valid until the next. */
const bs_read_facts *bs_reader_facts(bs_reader *reader);

/* Returns the index-th length entry of all files so far, in the order of reading: 1, or 0 after the last one. */
int bs_reader_length(const bs_reader *reader, uint64_t index, bs_read_length *length);
uint64_t bs_reader_jobs(const bs_reader *reader);

/* Counts live bytes by file. Then bs_reader_usage returns each file for which bs_reader_open was BS_FILE_ENTRIES: 1, or
 * 0 after the last one. */
void bs_reader_tally(bs_reader *reader);
int bs_reader_usage(const bs_reader *reader, uint32_t index, bs_file_usage *usage);

/* --- rewriting -------------------------------------------------------------------------------------------- */

/* Writes one full entry for each live job of a reader, in the order of their last entries, and the highest id. The
 * reader must have read all files and outlive the rewrite. */
typedef struct bs_rewrite bs_rewrite;

typedef struct {
    uint64_t read;    /* bytes of the old files */
    uint64_t jobs;    /* written */
    uint64_t bytes;   /* given to the kernel */
    uint32_t files;   /* created */
} bs_rewrite_stats;

/* The files are binlog.<first> and so on with `suffix`, in `folder`, where none of them may exist. `file_size` is
 * bytes; only a file with a single larger job exceeds it. `wall` is the time of entries without one. 0 or a negative
 * errno; after 0 the caller owns *created. bs_rewrite_free ignores NULL. */
int bs_rewrite_new(bs_reader *from, const char *folder, uint32_t first, const char *suffix, int64_t file_size,
                   int64_t wall, bs_rewrite **created);

/* Reads `budget` bytes: 1; 0 when everything but the folder is written and synced; or a negative errno, -ESTALE if the
 * old files have changed since they were read. */
int bs_rewrite_run(bs_rewrite *rewrite, uint64_t budget);
const bs_rewrite_stats *bs_rewrite_progress(bs_rewrite *rewrite);
void bs_rewrite_free(bs_rewrite *rewrite);

/* cdef end */

#endif
