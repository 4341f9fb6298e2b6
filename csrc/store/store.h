/* The C interface of the history store: messages, queues and index as bytes, in RocketMQ's format
 * (docs/formats/rocketmq.md).
 *
 * Nothing here opens a file, takes a lock or reads a clock; callers provide memory and write the results. Integers in
 * the store are big-endian; items (below) have the machine's byte order.
 *
 * Functions that return int or int64_t return a negative errno or an HS_ERR_ value for errors.
 */
#ifndef HS_STORE_H
#define HS_STORE_H

#include <stddef.h>
#include <stdint.h>

/* cdef begin */

enum {
    HS_ITEM_HEAD = 96,
    HS_UNIT = 20,         /* bytes of a unit of a consume queue: offset 8, size 4, tag code 8 */
    HS_INDEX_HEADER = 40, /* bytes before the slots of an index file */
    HS_INDEX_ENTRY = 20,
    HS_BLANK = 8,         /* bytes of the record that fills a segment */
    HS_TOPIC_MAX = 255    /* bytes; topics are folder names */
};

/* A message to append: this head, then topic, properties and body, then zeros up to a multiple of 8 bytes. A batch is a
 * sequence of items. Hosts are IPv4 unless `sys_flag` says IPv6; an IPv4 address is in the first 4 bytes. Properties
 * are text as in the store: name 0x01 value 0x02 ... */
typedef struct {
    uint32_t size; /* bytes of the item, padding included */
    int32_t queue_id;
    int32_t flag;
    int32_t sys_flag;
    int64_t born_timestamp;  /* milliseconds since 1970, like all timestamps here */
    int64_t store_timestamp; /* 0: the time of the call */
    int64_t prepared_offset;
    int32_t reconsume_times;
    uint32_t body_length;
    uint16_t topic_length;
    uint16_t properties_length;
    int32_t born_port;
    int32_t store_port;
    uint8_t born_ip[16];
    uint8_t store_ip[16];
    uint32_t reserved; /* 0 */
} hs_item;

/* Errors of an item. */
enum {
    HS_ERR_LAYOUT = -1000,     /* sizes that contradict each other */
    HS_ERR_TOPIC = -1001,      /* empty, too long, no UTF-8, or no valid folder name */
    HS_ERR_PROPERTIES = -1002, /* longer than 32,767 bytes (20 less with the CRC property), no UTF-8, or with zeros */
    HS_ERR_BODY = -1003,       /* longer than the limit */
    HS_ERR_SEGMENT = -1004,    /* would not fit into an empty segment */
    HS_ERR_QUEUE = -1005,      /* negative queue id */
    HS_ERR_FLAG = -1006        /* an inner batch, which has another kind of queue */
};

/* --- queues: the next queue offset of each --- */

typedef struct hs_queues hs_queues;

typedef struct {
    const char *topic; /* of the table, not terminated */
    uint32_t topic_length;
    int32_t queue_id;
} hs_queue_name;

hs_queues *hs_queues_new(void); /* NULL: no memory */
void hs_queues_free(hs_queues *queues);
/* Adds the queue if it is new. Returns its number, 0 for the first. */
int32_t hs_queues_set(hs_queues *queues, const char *topic, size_t topic_length, int32_t queue_id, int64_t next);
/* `number` is a result of hs_queues_set. */
void hs_queues_name(const hs_queues *queues, int32_t number, hs_queue_name *name);
/* hs_queues_undo takes back the queue offsets assigned since the last mark. A mark takes constant time. */
void hs_queues_mark(hs_queues *queues);
void hs_queues_undo(hs_queues *queues);

/* --- messages out of items --- */

typedef struct {
    int64_t max_body;      /* bytes */
    int64_t segment_bytes; /* a record and a blank must fit into it */
    int32_t property_crc;  /* each record ends with its CRC as a property */
} hs_limits;

/* Checks all items. Returns their number, or an HS_ERR_ with the index of the invalid one in `fault_at`. */
int64_t hs_items_check(const char *items, size_t length, const hs_limits *limits, int64_t *fault_at);

enum { HS_ENCODED_ALL = 0, HS_ENCODED_OUTPUT_FULL = 1, HS_ENCODED_SEGMENT_FULL = 2 };

typedef struct {
    int64_t offset;          /* in: of the first record */
    int64_t segment_end;     /* in: offset of the end of the segment */
    int64_t now;             /* in: for items without a store timestamp, unless the latest so far is later */
    int64_t store_timestamp; /* in and out: the latest so far */
    size_t consumed;         /* out: bytes of items */
    size_t produced;         /* out: bytes in `out`, with the blank if the segment is full */
    int64_t count;           /* out: messages */
    int64_t last_offset;     /* out: of the last record, if count > 0 */
    int32_t why;             /* out: HS_ENCODED_ */
} hs_encoding;

/* Encodes checked items as records, until all are done or one does not fit. `offsets` (may be NULL) gets two numbers
 * for each: its offset, and its queue offset (0 for prepared and rolled-back messages). Returns 0 or -ENOMEM. */
int hs_encode(hs_queues *queues, const hs_limits *limits, const char *items, size_t length, char *out,
              size_t capacity, int64_t *offsets, hs_encoding *encoding);

/* --- records as they are in the log --- */

enum {
    HS_FOUND_RECORD = 1,
    HS_FOUND_BLANK = 2, /* the rest of the segment is empty; `size` is its length, these 8 bytes included */
    HS_FOUND_NOTHING = 3, /* zeros: the end of the log */
    HS_FOUND_CUT = 4,     /* the bytes end inside the record */
    HS_FOUND_BAD_MAGIC = 5,
    HS_FOUND_BAD_SIZE = 6,   /* less than any record has, or contradicted by lengths inside */
    HS_FOUND_BAD_OFFSET = 7, /* the recorded offset is not its own */
    HS_FOUND_BAD_BODY = 8,   /* body CRC */
    HS_FOUND_BAD_CRC = 9,    /* the CRC property */
    HS_FOUND_BAD_TEXT = 10   /* no topic, or zeros in topic or properties */
};

/* Only the body of a record always has a checksum. HS_CHECK_TEXT detects partly lost writes elsewhere: files are zero
 * before they are written, and hs_items_check rejects zeros in topic and properties. */
enum {
    HS_CHECK_BODY = 1,
    HS_CHECK_PROPERTY_CRC = 2, /* of records that have one */
    HS_CHECK_TEXT = 4,
    HS_CHECK_HAS_CRC = 8 /* a record without the CRC property is invalid */
};

/* Positions (`_at`) count from the start of the record. */
typedef struct {
    int64_t offset;
    int64_t queue_offset;
    int64_t physical_offset;
    int64_t born_timestamp;
    int64_t store_timestamp;
    int64_t prepared_offset;
    int32_t size;
    int32_t magic;
    int32_t body_crc;
    int32_t queue_id;
    int32_t flag;
    int32_t sys_flag;
    int32_t reconsume_times;
    uint32_t body_at;
    uint32_t body_length;
    uint32_t topic_at;
    uint32_t topic_length;
    uint32_t properties_at;
    uint32_t properties_length;
    uint32_t born_host_at;
    uint32_t store_host_at;
    int32_t has_crc; /* the properties end with the CRC property */
} hs_record;

/* Decodes the record at the start of `data`, which is at `offset` of the log. Returns HS_FOUND_. */
int hs_record_read(const char *data, size_t length, int64_t offset, int32_t checks, hs_record *record);

typedef struct {
    size_t used;   /* bytes of whole records */
    int64_t count; /* records */
    int32_t why;   /* HS_FOUND_ that ended it; HS_FOUND_RECORD: `most` were found */
} hs_scanned;

/* Decodes up to `most` consecutive records. */
void hs_scan(const char *data, size_t length, int64_t offset, int32_t checks, hs_record *records, int64_t most,
             hs_scanned *scanned);

/* Java's String.hashCode of the UTF-16 form of UTF-8 text, continued from `seed`, 0 at first. */
int32_t hs_java_hash(int32_t seed, const char *text, size_t length);
/* Returns whether the text is UTF-8. */
int hs_is_utf8(const char *text, size_t length);
/* CRC-32 of zlib, continued from `crc`, 0 at first. */
uint32_t hs_crc32(uint32_t crc, const char *data, size_t length);

/* --- from the log to queues and index --- */

typedef struct hs_dispatch hs_dispatch;

/* Consecutive units of one queue. */
typedef struct {
    const char *units;
    int64_t first; /* queue offset */
    int32_t count;
    int32_t queue; /* number */
} hs_run;

/* One key of the index. */
typedef struct {
    int64_t offset;
    int64_t store_timestamp;
    int32_t hash; /* of topic#key, not negative */
    int32_t reserved;
} hs_key;

enum { HS_DISPATCH_GAP = 100 }; /* besides HS_FOUND_ */

typedef struct {
    size_t used;             /* bytes of records that are dispatched */
    int64_t count;           /* messages */
    int64_t store_timestamp; /* of the last one, if count > 0 */
    int64_t duplicates;      /* messages whose queue offset exists already: they have no unit */
    const hs_run *runs;      /* of the dispatch, until its next call */
    int64_t run_count;
    const hs_key *keys;
    int64_t key_count;
    int32_t why;      /* HS_FOUND_ that ended it, or HS_DISPATCH_GAP */
    hs_record record; /* the one with the gap */
} hs_dispatched;

hs_dispatch *hs_dispatch_new(void); /* NULL: no memory */
void hs_dispatch_free(hs_dispatch *dispatch);
/* Converts sound records to units and keys. A queue that is not in `queues` is added and begins at its first message's
 * queue offset. A message whose queue offset is beyond the next ends the call (HS_DISPATCH_GAP). Returns 0 or -ENOMEM.
 */
int hs_dispatch_run(hs_dispatch *dispatch, hs_queues *queues, const char *data, size_t length, int64_t offset,
                    hs_dispatched *dispatched);

/* --- an index file in memory, as a whole --- */

typedef struct {
    int64_t begin_timestamp;
    int64_t end_timestamp;
    int64_t begin_offset;
    int64_t end_offset;
    int32_t used_slots;
    int32_t next_entry; /* 1 in an empty file: entry 0 is never used */
} hs_index_header;

int64_t hs_index_bytes(int32_t slots, int32_t entries);
void hs_index_read_header(const char *index, hs_index_header *header);
void hs_index_write_header(char *index, const hs_index_header *header);
/* Returns how many keys fitted. */
int64_t hs_index_put(char *index, int32_t slots, int32_t entries, const hs_key *keys, int64_t count);
/* Restores an earlier header: zeroes entries behind it and relinks the slots to the remaining ones. Returns 0, or
 * -EINVAL if the header does not belong to this file. */
int hs_index_rewind(char *index, int32_t slots, int32_t entries, const hs_index_header *header);

/* Finds offsets of entries with this hash whose time may be within begin..end, newest first. `cursor` is 0 at first;
 * after `most` results the next call continues from it; it is -1 at the end. Returns the number of results, or -EINVAL
 * if a link leads out of the file or forwards. */
int64_t hs_index_find(const char *index, int32_t slots, int32_t entries, int32_t hash, int64_t begin, int64_t end,
                      int64_t *offsets, int64_t most, int32_t *cursor);

enum {
    HS_INDEX_SOUND = 0,
    HS_INDEX_HEADER_WRONG = 1,
    HS_INDEX_LINK_WRONG = 2,  /* an entry does not lead to the one before it in its slot */
    HS_INDEX_SLOT_WRONG = 3,  /* a slot does not lead to its newest entry */
    HS_INDEX_ENTRY_WRONG = 4  /* hs_index_compare: hash, offset or time */
};

/* Checks links and slots against the entries. `at` gets the position of the first error. Returns HS_INDEX_ or -ENOMEM.
 */
int hs_index_check(const char *index, int32_t slots, int32_t entries, int64_t *at);

typedef struct {
    int32_t entry;            /* in and out: the next entry to compare */
    int32_t reserved;
    int64_t previous_end;     /* in: end timestamp of the previous file, 0: none */
    int64_t key;              /* out: compared `keys` */
    int64_t at;               /* out: position of the error */
} hs_index_comparison;

/* Compares entries with keys of the log, in order, until either ends (HS_INDEX_SOUND) or they differ. */
int hs_index_compare(const char *index, int32_t slots, int32_t entries, const hs_key *keys, int64_t count,
                     hs_index_comparison *comparison);

/* cdef end */

#endif
