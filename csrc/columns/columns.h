/* Files as columns: what Python sees of the decoders that give Spark its rows.
 *
 * Bytes of a whole file go in, and values go to where Arrow keeps them, into memory of the caller. Nothing here opens a
 * file or reads a clock. What is to be believed in a file is not decided here: of a binlog file scan.h is the judge, as
 * at a server's start, and of a commit log store/record.c.
 *
 * Functions that return int return a negative errno when they cannot go on.
 */
#ifndef BC_COLUMNS_H
#define BC_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

/* cdef begin */

/* Where one column goes, in the layout of Arrow. Bitmaps are zeros before they are given, and `ends` begin with one. */
typedef struct {
    void *values;     /* fixed width: a value per row; text: its bytes; NULL: the column is not wanted */
    uint8_t *valid;   /* a bit per row; NULL: no row is null */
    int32_t *ends;    /* of text, of lists: the place behind each row; else NULL */
    int64_t capacity; /* of text: bytes; of what is in lists: how many */
    int64_t used;     /* of the same */
} bc_column;

enum { BC_MOST = 32 };

typedef struct {
    bc_column columns[BC_MOST];
    int64_t capacity; /* rows */
    int64_t rows;
    int32_t full;     /* out: BC_NO_SPACE is about this column */
    int64_t needed;   /* out: its capacity must be so large at least */
} bc_batch;

enum {
    BC_END = 0,   /* the file has no more */
    BC_MORE = 1,  /* the batch is full */
    BC_FAULT = 2, /* something is wrong: see bc_fault */
    BC_NO_SPACE = 3   /* not even one row fits: see `full` */
};

/* A place that is left out. Offsets are of the file. */
typedef struct {
    int64_t at;
    int64_t next;    /* where reading goes on; the file's size: nowhere */
    int32_t torn;    /* what a crash leaves of an entry that was being written at the end */
    int32_t cut;     /* the file ends before the entry does */
    int32_t found;   /* HS_FOUND_, of a commit log */
    const char *why; /* of a binlog file; static */
} bc_fault;

/* --- a binlog file --- */

enum {
    BC_OFFSET, BC_SIZE, BC_KIND, BC_ID, BC_TUBE, BC_PRIORITY, BC_DELAY, BC_TTR, BC_BODY_SIZE, BC_CREATED_AT,
    BC_EVENT_TIME, BC_EVENT_KIND, BC_EVENT_UNTIL, BC_DEADLINE_AT, BC_STATE, BC_RESERVES, BC_TIMEOUTS, BC_RELEASES,
    BC_BURIES, BC_KICKS, BC_CHECKSUM, BC_IS_COPY, BC_CREATED_NS, BC_EVENT_NS, BC_DEADLINE_NS, BC_RESERVED_AT,
    BC_RESERVED_NS, BC_TRUNCATED, BC_OLD_DEADLINE_NS, BC_BODY,
    BC_ENTRY_COLUMNS
};

enum { BC_FILE_EMPTY = 0, BC_FILE_ENTRIES = 1, BC_FILE_VERSION = 2 };

typedef struct bc_entries bc_entries;

bc_entries *bc_entries_new(void); /* NULL: no memory */
void bc_entries_free(bc_entries *entries);
/* Begins a file: all its bytes, which must stay where they are, and the N of binlog.N. BC_FILE_. */
int bc_entries_open(bc_entries *entries, char *data, size_t length, uint32_t number);
/* Only entries that begin at from..to are put into batches; all before `to` are looked at. */
void bc_entries_range(bc_entries *entries, int64_t from, int64_t to);
/* Adds rows, one for each entry of a job. At a fault it stays: bc_entries_skip goes on behind it. */
int bc_entries_read(bc_entries *entries, bc_batch *batch);
void bc_entries_skip(bc_entries *entries);
void bc_entries_fault(const bc_entries *entries, bc_fault *fault);
/* Behind the last entry that was believed so far. */
int64_t bc_entries_end(const bc_entries *entries);
int32_t bc_entries_version(const bc_entries *entries);

/* --- a file of the commit log --- */

enum {
    BC_LOG_TOPIC, BC_LOG_TUBE, BC_LOG_QUEUE_ID, BC_LOG_QUEUE_OFFSET, BC_LOG_OFFSET, BC_LOG_SIZE, BC_LOG_TAGS,
    BC_LOG_KEYS, BC_LOG_KEY_TEXT, BC_LOG_PROPERTIES, BC_LOG_PROPERTY_NAME, BC_LOG_PROPERTY_VALUE, BC_LOG_FLAG,
    BC_LOG_SYS_FLAG, BC_LOG_RECONSUMED, BC_LOG_BORN, BC_LOG_STORED, BC_LOG_BORN_HOST, BC_LOG_STORE_HOST,
    BC_LOG_BODY_CRC, BC_LOG_BODY_SIZE, BC_LOG_PREPARED, BC_LOG_BODY,
    BC_LOG_COLUMNS
};

typedef struct {
    const char *data; /* all bytes of the file */
    size_t length;
    int64_t base;   /* offset of its first byte in the log */
    int64_t at;     /* in the file: what comes next */
    int64_t from;   /* offsets in the log: only messages that begin at from..to are put into batches */
    int64_t to;
    int32_t checks; /* HS_CHECK_ of store/store.h */
    bc_fault fault;
} bc_log;

/* Goes on with the first record that begins at this offset of the file or behind it and says it belongs there. */
void bc_log_seek(bc_log *log, int64_t begin);
/* Adds rows. At a fault it stays: bc_log_skip goes on at the next record that says it belongs where it is. */
int bc_log_read(bc_log *log, bc_batch *batch);
void bc_log_skip(bc_log *log);

/* --- units of a consume queue, entries of an index file --- */

enum { BC_UNIT_OFFSET, BC_UNIT_SIZE, BC_UNIT_TAG_CODE, BC_UNIT_NUMBER, BC_UNIT_COLUMNS };

/* Adds units from `*at` (bytes) on, `first` is the queue offset of the file's first unit. Fillers and units that were
 * never written are left out. BC_END or BC_MORE. */
int bc_units_read(const char *data, size_t length, int64_t first, int64_t *at, bc_batch *batch);

enum { BC_INDEX_NUMBER, BC_INDEX_SLOT, BC_INDEX_HASH, BC_INDEX_OFFSET, BC_INDEX_STORED, BC_INDEX_PREVIOUS,
       BC_INDEX_COLUMNS };

/* Adds entries from number `*at` on, 1 for the first. BC_END or BC_MORE, or -EINVAL if it is no file of these sizes. */
int bc_index_read(const char *data, size_t length, int32_t slots, int32_t entries, int32_t *at, bc_batch *batch);

/* --- histories of jobs, out of their entries --- */

/* Columns of entries. Those of one history stand together, the oldest first. Times are wall nanoseconds, -1: not known. */
typedef struct {
    const int32_t *host;              /* a number for each name */
    const int64_t *id;
    const int64_t *created_at;
    const int64_t *delay;             /* seconds */
    const int64_t *ttr;
    const int64_t *at;                /* of the event; of a bounded one, the earliest it can be */
    const int64_t *more;              /* of a bounded one, the latest it can be; else when the job was reserved */
    const int64_t *deadline;          /* or, of C's entries that have none, what is left of an old one */
    const int64_t *reserves_timeouts; /* two numbers of 32 bits, the first one above */
    const int64_t *releases_buries;
    const int64_t *kicks_priority;
    const int64_t *flags;              /* BC_SAID_ */
    int64_t rows;
} bc_history_entries;

enum {
    BC_FLAGS_STATE = 7,      /* as in entries: 0 deleted, 1 ready, 2 reserved, 3 buried, 4 delayed */
    BC_FLAGS_CERTAINTY = 8,  /* times 0 exact, 1 derived, 2 bounded */
    BC_FLAGS_SOUND = 32,     /* a server of ours wrote it */
    BC_FLAGS_TRUNCATED = 64,
    BC_FLAGS_FULL = 128
};

enum {
    BC_PUT, BC_RESERVE, BC_TOUCH, BC_RELEASE, BC_TIMEOUT, BC_RETURN, BC_DUE, BC_BURY, BC_KICK, BC_DELETE, BC_TRUNCATE,
    BC_EVENTS
};

enum { BC_INFERRED_MAX = 1000 };

/* What comes out, a value for each history or event. Times are microseconds; -1 stands for null. */
typedef struct {
    int64_t count;
    int64_t *first_row;  /* of the entries that came in */
    int64_t *last_row;
    int64_t *full_row;
    int64_t *end_at;
    int64_t *first_reserve_at;
    int64_t *first_reserve_sure; /* how certain that is */
    int64_t *last_at;
    int64_t *touches;
    int64_t *end;        /* BC_DELETE, BC_TRUNCATE or -1 */
    int64_t *certainty;
    int64_t *complete;
    int64_t *in_ready;   /* microseconds in each state */
    int64_t *in_reserved;
    int64_t *in_buried;
    int64_t *in_delayed;
    int64_t *first_event; /* the put */
    int64_t event_count;
    int64_t *event;      /* BC_PUT to BC_TRUNCATE */
    int64_t *event_at;
    int64_t *event_certainty;
    int64_t *event_until;
    int64_t *event_priority;
    int64_t *event_delay;
} bc_history_columns;

typedef struct bc_histories bc_histories;

bc_histories *bc_histories_new(void); /* NULL: no memory */
void bc_histories_free(bc_histories *histories);
/* Tells all histories that are whole, and with `last` the last one, too; what was told before is forgotten. Returns the
 * number of rows that these histories have, or -ENOMEM. */
int64_t bc_histories_of_entries(bc_histories *histories, const bc_history_entries *entries, int last);
/* The same of the property `timeline` of messages, a history each: its text begins at ends[row] of `data`, and ends at the
 * next one. Those with a bit in `truncated` have ended by a truncate. A text that is none is told as far as it is one, and
 * is not complete. 0 or -ENOMEM. */
int bc_histories_of_timelines(bc_histories *histories, const char *data, const int32_t *ends, const uint8_t *truncated, int64_t rows);
/* What was told; good until the next call. */
const bc_history_columns *bc_histories_columns(const bc_histories *histories);

/* cdef end */

#endif
