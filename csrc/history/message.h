/* Encodes a finished job as a message of the history store, in the layout of hs_item (store/store.h). The properties
 * are text; they have the names of stats-job where it has them. */
#ifndef BS_MESSAGE_H
#define BS_MESSAGE_H

#include "base/bytes.h"
#include "binlog_files/tube_names.h"
#include "history/timeline.h"

typedef struct {
    const bs_name *tube; /* with its topic */
    const char *key; /* UNIQ_KEY is key-file-offset */
    uint32_t file;
    uint64_t offset;
    bool truncated;
    const bs_entry *last; /* the entry that ended it */
    const bs_timeline *timeline; /* includes the end when the message is appended */
    const bs_timeline_limits *limits;
    uint32_t body_size; /* without the CR LF */
    bool without_body;
} bs_message;

/* Reserves memory for the message with three more events than its timeline has now. Returns 0 or -ENOMEM. */
int bs_message_reserve(bs_bytes *items, const bs_message *message);

/* Appends the message to reserved memory; returns where to copy its body. */
char *bs_message_append(bs_bytes *items, const bs_message *message);

#endif
