/* Job histories: a message for each finished job, made from binlog files while servers write them. */
#ifndef BS_API_HISTORY_H
#define BS_API_HISTORY_H

#include "api/types.h"

/* cdef begin */

/* Reads the binlog files of several folders. It takes no lock and changes nothing. Memory: about 13 bytes for an open
 * job that was only put, about 200 for one with more events, and 250 KB for each folder. */
typedef struct bs_history bs_history;

/* A position in the files of a folder. */
typedef struct {
    uint32_t file;
    uint64_t offset;
} bs_binlog_position;

/* Damage of a file. */
typedef struct {
    uint32_t folder;
    bs_binlog_position position;
    char what[128];
} bs_history_fault;

typedef struct {
    uint64_t open;     /* jobs */
    uint64_t finished; /* with a message */
    uint64_t orphans;  /* ended without a message, because their full entry was not seen */
    uint64_t left_out; /* bodies that were too large or unreadable */
    uint64_t bytes;    /* read */
} bs_history_stats;

/* A message has at most `most_body` bytes of body and `most_events` events, 2 to 500. 0 or a negative errno; after 0
 * the caller owns *created. bs_history_free ignores NULL. */
int bs_history_new(uint64_t most_body, uint32_t most_events, bs_history **created);
void bs_history_free(bs_history *history);

/* Follows a folder from its first file on; UNIQ_KEY of its messages begins with `key`. Returns the folder's index, or a
 * negative errno. */
int bs_history_add_folder(bs_history *history, const char *path, const char *key);

/* Call these before the first read. Entries before the checkpointed position add no events to jobs of the checkpoint;
 * entries up to the archived position make no messages. */
void bs_history_set_checkpointed(bs_history *history, uint32_t folder, uint32_t file, uint64_t offset);
void bs_history_set_archived(bs_history *history, uint32_t folder, uint32_t file, uint64_t offset);

/* Why bs_history_read has returned: everything durable is read; the budget is used up; a topic is needed. */
enum { BS_HISTORY_END, BS_HISTORY_MORE, BS_HISTORY_TOPIC };

/* Reads about `budget` bytes of files, or creates that many bytes of messages, up to the durable position: offset
 * `durable_end` of file `durable_file`. Returns a BS_HISTORY_ value; or a negative errno, and then there are no messages.
 */
int bs_history_read(bs_history *history, uint32_t folder, uint32_t durable_file, uint64_t durable_end, uint64_t budget);

/* Returns the batch of hs_item (store/store.h) of the last bs_history_read, valid until the next. */
const char *bs_history_items(const bs_history *history, size_t *length, uint64_t *count);

/* After BS_HISTORY_TOPIC: the tube whose topic is needed. A topic has at most 255 bytes. 0, -EINVAL or -ENOMEM. */
const char *bs_history_tube(const bs_history *history, size_t *length);
int bs_history_set_topic(bs_history *history, const char *topic, size_t length);

/* Returns where the next read starts; zeros before the first one. */
bs_binlog_position bs_history_position(const bs_history *history, uint32_t folder);

/* Drops jobs of the checkpoint whose full entry was not read, because they have ended meanwhile. Call it when all
 * folders of a server have been read. */
void bs_history_drop_unseen(bs_history *history);

/* Returns the first file that is still needed: earlier ones are read and have no full entry of an open job. */
int64_t bs_history_needed_from(bs_history *history, uint32_t folder);

/* Takes a fault, valid until the next call of any kind; NULL if there is none. */
const bs_history_fault *bs_history_next_fault(bs_history *history);

const bs_history_stats *bs_history_get_stats(bs_history *history);

/* The checkpoint: jobs with more events than their put, and how far folders are read. The bytes are valid until the
 * next call; NULL without memory. Load them before the first read: 0, -EBADMSG, -EINVAL or -ENOMEM. */
const char *bs_history_save_checkpoint(bs_history *history, size_t *length);
int bs_history_load_checkpoint(bs_history *history, const char *data, size_t length);

/* cdef end */

#endif
