/* Decoders that convert files to Arrow columns for the Spark data sources.
 *
 * The caller provides the bytes of a whole file and the memory of the columns. Nothing here opens a file or reads a
 * clock. scan.h decides which bytes of a binlog file are valid, as in recovery, and store/record.c those of a commit
 * log.
 *
 * Functions that return int return a negative errno for errors.
 */
#ifndef BC_COLUMNS_H
#define BC_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

/* cdef begin */

/* One column in Arrow's layout. The caller zeroes bitmaps and sets the first of `ends` to zero. */
typedef struct {
    void *values;     /* fixed width: a value per row; text: its bytes; NULL: the column is not wanted */
    uint8_t *valid;   /* a bit per row; NULL: no row is null */
    int32_t *ends;    /* of text and lists: the end of each row; else NULL */
    int64_t capacity; /* of text: bytes; of list elements: their number */
    int64_t used;     /* of the capacity */
} bc_column;

enum { BC_MOST = 32 };

typedef struct {
    bc_column columns[BC_MOST];
    int64_t capacity; /* rows */
    int64_t rows;
    int32_t full;     /* out: the column without space, after BC_NO_SPACE */
    int64_t needed;   /* out: the capacity that this column needs */
} bc_batch;

enum {
    BC_END = 0,   /* end of the file */
    BC_MORE = 1,  /* the batch is full */
    BC_FAULT = 2, /* invalid bytes: see bc_fault */
    BC_NO_SPACE = 3   /* not even one row fits: see `full` */
};

/* A skipped range. Offsets are of the file. */
typedef struct {
    int64_t at;
    int64_t next;    /* where reading continues; the file's size: nowhere */
    int32_t torn;    /* an entry at the end that a crash cut off */
    int32_t cut;     /* the file ends before the entry does */
    int32_t found;   /* HS_FOUND_, of a commit log */
    const char *why; /* of a binlog file; static */
} bc_fault;

/* --- a binlog file --- */

enum {
    BC_OFFSET, BC_SIZE, BC_KIND, BC_ID, BC_TUBE, BC_PRIORITY, BC_DELAY, BC_TTR, BC_BODY_SIZE, BC_CREATED_AT,
    BC_EVENT_TIME, BC_EVENT_KIND, BC_EVENT_UNTIL, BC_DEADLINE_AT, BC_STATE, BC_RESERVES, BC_TIMEOUTS, BC_RELEASES,
    BC_BURIES, BC_KICKS, BC_CHECKSUM, BC_IS_COPY, BC_CREATED_NS, BC_EVENT_NS, BC_DEADLINE_NS, BC_RESERVED_AT,
    BC_RESERVED_NS, BC_ENDED, BC_OLD_DEADLINE_NS, BC_BODY,
    BC_ENTRY_COLUMNS
};

enum { BC_FILE_EMPTY = 0, BC_FILE_ENTRIES = 1, BC_FILE_VERSION = 2 };

typedef struct bc_entries bc_entries;

bc_entries *bc_entries_new(void); /* NULL: no memory */
void bc_entries_free(bc_entries *entries);
/* Begins a file: all its bytes, which must not move, and the N of binlog.N. Only entries that begin at from..to become
 * rows; earlier entries are read, too. Returns BC_FILE_. */
int bc_entries_open(bc_entries *entries, char *data, size_t length, uint32_t number, int64_t from, int64_t to);
/* Adds a row for each entry of a job. After a fault, bc_entries_skip continues behind it. */
int bc_entries_read(bc_entries *entries, bc_batch *batch);
void bc_entries_skip(bc_entries *entries);
bc_fault bc_entries_fault(const bc_entries *entries);
/* Returns the end of the last valid entry so far. */
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
    int64_t at;     /* in the file: of the next record */
    int64_t from;   /* offsets in the log: only messages that begin at from..to become rows */
    int64_t to;
    int32_t checks; /* HS_CHECK_ of store/store.h */
    bc_fault fault;
} bc_log;

/* Continues with the first record at or behind this offset of the file whose recorded offset is right. */
void bc_log_seek(bc_log *log, int64_t begin);
/* Adds rows. After a fault, bc_log_skip continues at the next record whose recorded offset is right. */
int bc_log_read(bc_log *log, bc_batch *batch);
void bc_log_skip(bc_log *log);

/* --- units of a consume queue, entries of an index file --- */

enum { BC_UNIT_OFFSET, BC_UNIT_SIZE, BC_UNIT_TAG_CODE, BC_UNIT_NUMBER, BC_UNIT_COLUMNS };

/* Adds units from `*at` (bytes) on; `first` is the queue offset of the file's first unit. Fillers and unwritten units
 * are skipped. Returns BC_END or BC_MORE. */
int bc_units_read(const char *data, size_t length, int64_t first, int64_t *at, bc_batch *batch);

enum { BC_INDEX_NUMBER, BC_INDEX_SLOT, BC_INDEX_HASH, BC_INDEX_OFFSET, BC_INDEX_STORED, BC_INDEX_PREVIOUS,
       BC_INDEX_COLUMNS };

/* Adds entries from number `*at` on, 1 for the first. Returns BC_END, BC_MORE, or -EINVAL if the sizes do not fit the
 * file. */
int bc_index_read(const char *data, size_t length, int32_t slots, int32_t entries, int32_t *at, bc_batch *batch);

/* --- histories of jobs, out of their entries --- */

/* Columns of entries, grouped by job, oldest first. Times are wall nanoseconds, -1: unknown. */
typedef struct {
    const int32_t *host;              /* a number for each name */
    const int64_t *id;
    const int64_t *created_at;
    const int64_t *delay;             /* seconds */
    const int64_t *ttr;
    const int64_t *at;                /* of the event; if bounded, the earliest possible time */
    const int64_t *more;              /* if bounded, the latest possible time; else the time of the reserve */
    const int64_t *deadline;          /* or, for C beanstalkd's entries without one, the remainder of an old deadline */
    const int64_t *reserves_timeouts; /* two 32-bit numbers, the first one in the upper half */
    const int64_t *releases_buries;
    const int64_t *kicks_priority;
    const int64_t *flags;              /* BC_FLAGS_ */
    const int64_t *data_end;           /* the newest known time of the host's entries */
    int64_t rows;
} bc_history_entries;

enum {
    BC_FLAGS_STATE = 7,      /* as in entries: 0 deleted, 1 ready, 2 reserved, 3 buried, 4 delayed */
    BC_FLAGS_CERTAINTY = 8,  /* times 0 exact, 1 derived, 2 bounded */
    BC_FLAGS_SOUND = 32,     /* written by this server */
    BC_FLAGS_FULL = 64,
    BC_FLAGS_RESERVES = 128, /* the host's server records reserves */
    BC_FLAGS_ENDED = 256     /* times how a deleted job ended, as in entries (BS_ENDED_): 0 to 5 */
};

/* The ends of a job are the last ones, in the order of BS_ENDED_. */
enum {
    BC_PUT, BC_RESERVE, BC_TOUCH, BC_RELEASE, BC_TIMEOUT, BC_RETURN, BC_DUE, BC_BURY, BC_KICK, BC_DELETE, BC_TRUNCATE,
    BC_MOVE, BC_EXPIRE, BC_DEAD_LETTER, BC_DISCARD,
    BC_EVENTS
};

enum { BC_INFERRED_MAX = 1000 };

/* States as in entries, and two of jobs whose state is not known. */
enum {
    BC_READY_OR_RESERVED = 5,
    BC_UNKNOWN = 6 /* one of several others, or the job may have ended */
};

/* The results, a value for each history, event or span. Times are microseconds; -1 stands for null. An event is
 * certain if it is not bounded, or if both bounds are equal. */
typedef struct {
    int64_t count;
    int64_t *first_row;  /* of the given entries */
    int64_t *last_row;
    int64_t *full_row;
    int64_t *end_at;              /* of the end and the first reserve: the bounds */
    int64_t *end_until;
    int64_t *first_reserve_at;
    int64_t *first_reserve_until;
    int64_t *last_at;
    int64_t *touches;
    int64_t *end;        /* BC_DELETE to BC_DISCARD, or -1 */
    int64_t *certainty;
    int64_t *complete;
    int64_t *state;       /* after the last event */
    int64_t *in_state[5]; /* microseconds in states 1 to 4, and in 1 and 2 together; -1: unknown */
    int64_t *first_span;
    int64_t *first_event; /* the put */
    int64_t event_count;
    int64_t *event;      /* BC_PUT to BC_DISCARD */
    int64_t *event_at;
    int64_t *event_certainty;
    int64_t *event_until;
    int64_t *event_priority;
    int64_t *event_states; /* a bit for each state that the job may have between this event and the next */
    int64_t *event_delay;
    int64_t span_count;    /* times with the same knowledge of the state, in order */
    int64_t *span_at;
    int64_t *span_state;
} bc_history_columns;

typedef struct bc_histories bc_histories;

bc_histories *bc_histories_new(void); /* NULL: no memory */
void bc_histories_free(bc_histories *histories);
/* Computes the histories of all complete groups, and with `last` also of the last one, replacing earlier results.
 * Returns the number of rows of these groups, or -ENOMEM. */
int64_t bc_histories_of_entries(bc_histories *histories, const bc_history_entries *entries, int last);
/* Computes histories from the property `timeline` of messages. The text of a row is at ends[row]..ends[row + 1] of
 * `data`; `ended` is how its job ended, as in entries. An invalid text is used up to its error, and its history is not
 * complete. Returns 0 or -ENOMEM. */
int bc_histories_of_timelines(bc_histories *histories, const char *data, const int32_t *ends, const uint8_t *ended,
                              int64_t rows);
/* Returns the results, valid until the next call. */
const bc_history_columns *bc_histories_columns(const bc_histories *histories);

/* cdef end */

/* How exactly the time of an event is known: BC_FLAGS_CERTAINTY. */
typedef enum { BC_EXACT, BC_DERIVED, BC_BOUNDED } bc_certainty;

#endif
