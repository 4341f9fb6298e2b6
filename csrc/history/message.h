/* A finished job as a message of the history store, in the layout of hs_item (store/store.h).
 *
 * The properties are text. Their names are those of stats-job where it has them. Knows nothing of files.
 */
#ifndef BS_MESSAGE_H
#define BS_MESSAGE_H

#include "base/bytes.h"
#include "binlog_files/tube_names.h"
#include "history/timeline.h"

typedef struct {
    const bs_name *tube;
    const bs_name *topic;
    const char *key; /* UNIQ_KEY is key-file-offset */
    uint32_t file;
    uint64_t offset;
    bool truncated;
    const bs_entry *last; /* the entry that ended it */
    const bs_timeline *timeline; /* with the end, at last */
    const bs_timeline_limits *limits;
    uint32_t body_size; /* without the CR LF */
    bool without_body;
} bs_message;

/* Makes sure of the room that the message takes, with three more events than its timeline has now. 0 or -ENOMEM. */
int bs_message_reserve(bs_bytes *items, const bs_message *message);

/* Appends it; returns where its body is to go, for which there is room. */
char *bs_message_append(bs_bytes *items, const bs_message *message);

#endif
