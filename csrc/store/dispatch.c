/* Converts records of the log to units of consume queues and keys of the index. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "store/order.h"
#include "store/queues.h"
#include "store/record.h"
#include "store/store.h"
#include "store/text.h"

typedef struct {
    int32_t queue;
    char bytes[HS_UNIT];
} queue_unit;

struct hs_dispatch {
    queue_unit *unsorted; /* in log order */
    size_t unsorted_count;
    size_t unsorted_capacity;
    char *units; /* by queue */
    hs_run *runs;
    size_t run_count;
    size_t run_capacity;
    hs_key *keys;
    size_t key_count;
    size_t key_capacity;
};

/* The properties used for dispatch; length 0 means that a property is missing. */
typedef struct {
    hs_slice tags;
    hs_slice keys;
    hs_slice unique_key;
    hs_slice delay;
} dispatch_properties;

static const char SCHEDULE_TOPIC[] = "SCHEDULE_TOPIC_XXXX";

enum { MS_PER_S = 1000, MS_PER_MIN = 60 * MS_PER_S, MS_PER_H = 60 * MS_PER_MIN };

/* RocketMQ's default delays of SCHEDULE_TOPIC, level 1 first. */
static const int64_t LEVELS_MS[] = {
    1 * MS_PER_S,   5 * MS_PER_S,   10 * MS_PER_S,  30 * MS_PER_S,   1 * MS_PER_MIN,  2 * MS_PER_MIN,
    3 * MS_PER_MIN, 4 * MS_PER_MIN, 5 * MS_PER_MIN, 6 * MS_PER_MIN,  7 * MS_PER_MIN,  8 * MS_PER_MIN,
    9 * MS_PER_MIN, 10 * MS_PER_MIN, 20 * MS_PER_MIN, 30 * MS_PER_MIN, 1 * MS_PER_H,  2 * MS_PER_H,
};

enum { LEVEL_COUNT = sizeof LEVELS_MS / sizeof *LEVELS_MS };

hs_dispatch *hs_dispatch_new(void)
{
    return calloc(1, sizeof(hs_dispatch));
}

void hs_dispatch_free(hs_dispatch *dispatch)
{
    if (!dispatch)
        return;
    free(dispatch->unsorted);
    free(dispatch->units);
    free(dispatch->runs);
    free(dispatch->keys);
    free(dispatch);
}

/* --- properties ------------------------------------------------------------------------------------------ */

/* The last pair of a name counts. */
static dispatch_properties parse_properties(const char *text, size_t length)
{
    dispatch_properties properties = {.tags = {0}};
    hs_slice rest = {text, length};
    hs_slice name;
    hs_slice value;
    while (hs_next_property(&rest, &name, &value)) {
        if (hs_slice_is(name, "TAGS"))
            properties.tags = value;
        else if (hs_slice_is(name, "KEYS"))
            properties.keys = value;
        else if (hs_slice_is(name, "UNIQ_KEY"))
            properties.unique_key = value;
        else if (hs_slice_is(name, "DELAY"))
            properties.delay = value;
    }
    return properties;
}

/* --- one message --------------------------------------------------------------------------------------------- */

/* Parses like Integer.parseInt; 0 if the text is no number, which is no level. */
static int64_t parse_level(hs_slice text)
{
    bool minus = text.length > 1 && text.text[0] == '-';
    size_t at = minus || (text.length > 1 && text.text[0] == '+') ? 1 : 0;
    int64_t value = 0;
    for (; at < text.length; at++) {
        if (text.text[at] < '0' || text.text[at] > '9')
            return 0;
        value = value * 10 + (text.text[at] - '0');
        if (value > INT32_MAX)
            return 0;
    }
    return minus ? -value : value;
}

static int64_t tag_code(const char *data, const hs_record *record, const dispatch_properties *properties)
{
    const hs_slice topic = {data + record->topic_at, record->topic_length};
    if (properties->delay.length > 0 && hs_slice_is(topic, SCHEDULE_TOPIC)) {
        int64_t level = parse_level(properties->delay);
        if (level > LEVEL_COUNT)
            level = LEVEL_COUNT;
        if (level > 0)
            return record->store_timestamp + LEVELS_MS[level - 1];
    }
    return properties->tags.length > 0 ? hs_java_hash(0, properties->tags.text, properties->tags.length) : 0;
}

static int add_key(hs_dispatch *dispatch, const hs_record *record, int32_t topic_hash, hs_slice key)
{
    hs_key *keys = bs_grow(dispatch->keys, dispatch->key_count, &dispatch->key_capacity, sizeof *keys);
    if (!keys)
        return -ENOMEM;
    dispatch->keys = keys;
    int32_t hash = hs_java_hash(topic_hash, key.text, key.length);
    keys[dispatch->key_count++] = (hs_key){
        .offset = record->offset,
        .store_timestamp = record->store_timestamp,
        .hash = hash == INT32_MIN ? 0 : hash < 0 ? -hash : hash, /* Math.abs, and 0 where that stays negative */
    };
    return 0;
}

static int add_keys(hs_dispatch *dispatch, const char *data, const hs_record *record,
                    const dispatch_properties *properties)
{
    if ((record->sys_flag & HS_FLAG_TRANSACTION) == HS_FLAG_ROLLBACK)
        return 0;
    int32_t topic_hash = hs_java_hash(0, data + record->topic_at, record->topic_length);
    topic_hash = hs_java_hash(topic_hash, "#", 1);
    int error = 0;
    if (properties->unique_key.length > 0)
        error = add_key(dispatch, record, topic_hash, properties->unique_key);
    hs_slice keys = properties->keys;
    hs_slice key;
    while (!error && hs_next_key(&keys, &key))
        error = add_key(dispatch, record, topic_hash, key);
    return error;
}

/* Adds the message's unit. Returns 1 if its queue offset is beyond the next. */
static int add_unit(hs_dispatch *dispatch, hs_queues *queues, const char *data, const hs_record *record,
                    const dispatch_properties *properties, hs_dispatched *dispatched)
{
    const char *topic = data + record->topic_at;
    int32_t number = hs_queues_get(queues, topic, record->topic_length, record->queue_id, record->queue_offset);
    if (number < 0)
        return number;
    hs_queue *queue = &queues->all[number];
    if (record->queue_offset > queue->next)
        return 1;
    if (record->queue_offset < queue->next) {
        dispatched->duplicates++;
        return 0;
    }
    queue_unit *grown =
        bs_grow(dispatch->unsorted, dispatch->unsorted_count, &dispatch->unsorted_capacity, sizeof *grown);
    if (!grown)
        return -ENOMEM;
    dispatch->unsorted = grown;
    if (queue->run_count == 0) {
        hs_run *runs = bs_grow(dispatch->runs, dispatch->run_count, &dispatch->run_capacity, sizeof *runs);
        if (!runs)
            return -ENOMEM;
        dispatch->runs = runs;
        queue->run_number = (int32_t)dispatch->run_count++;
        runs[queue->run_number] = (hs_run){.queue = number, .first = queue->next};
    }
    queue_unit *unit = &dispatch->unsorted[dispatch->unsorted_count++];
    unit->queue = number;
    hs_put64(unit->bytes, record->offset);
    hs_put32(unit->bytes + 8, record->size);
    hs_put64(unit->bytes + 12, tag_code(data, record, properties));
    queue->run_count++;
    queue->next++;
    return 0;
}

/* --- many messages ----------------------------------------------------------------------------------------------- */

/* Sorts units by queue into runs. Returns 0 or -ENOMEM. */
static int sort_units(hs_dispatch *dispatch, hs_queues *queues)
{
    char *units = realloc(dispatch->units, dispatch->unsorted_count * HS_UNIT + 1);
    char *at = units;
    for (size_t number = 0; number < dispatch->run_count; number++) {
        hs_run *run = &dispatch->runs[number];
        hs_queue *queue = &queues->all[run->queue];
        run->units = at;
        if (at)
            at += (size_t)queue->run_count * HS_UNIT;
        queue->run_count = 0;
    }
    if (!units)
        return -ENOMEM;
    dispatch->units = units;
    for (size_t number = 0; number < dispatch->unsorted_count; number++) {
        const queue_unit *unit = &dispatch->unsorted[number];
        hs_run *run = &dispatch->runs[queues->all[unit->queue].run_number];
        memcpy(units + (run->units - units) + (size_t)run->count * HS_UNIT, unit->bytes, HS_UNIT);
        run->count++;
    }
    return 0;
}

/* Returns 0, 1 for a gap, or -ENOMEM. */
static int dispatch_one(hs_dispatch *dispatch, hs_queues *queues, const char *data, const hs_record *record,
                        hs_dispatched *dispatched)
{
    dispatch_properties properties = parse_properties(data + record->properties_at, record->properties_length);
    if (hs_in_queue(record->sys_flag)) {
        int result = add_unit(dispatch, queues, data, record, &properties, dispatched);
        if (result)
            return result;
    }
    return add_keys(dispatch, data, record, &properties);
}

int hs_dispatch_run(hs_dispatch *dispatch, hs_queues *queues, const char *data, size_t length, int64_t offset,
                    hs_dispatched *dispatched)
{
    dispatch->unsorted_count = dispatch->run_count = dispatch->key_count = 0;
    *dispatched = (hs_dispatched){.why = HS_FOUND_CUT};
    int result = 0;
    for (;;) {
        const char *at = data + dispatched->used;
        hs_record *record = &dispatched->record;
        dispatched->why =
            hs_record_read(at, length - dispatched->used, offset + (int64_t)dispatched->used, 0, record);
        if (dispatched->why != HS_FOUND_RECORD)
            break;
        result = dispatch_one(dispatch, queues, at, record, dispatched);
        if (result)
            break;
        dispatched->used += (size_t)record->size;
        dispatched->store_timestamp = record->store_timestamp;
        dispatched->count++;
    }
    if (result == 1)
        dispatched->why = HS_DISPATCH_GAP;
    int error = sort_units(dispatch, queues);
    dispatched->runs = dispatch->runs;
    dispatched->run_count = (int64_t)dispatch->run_count;
    dispatched->keys = dispatch->keys;
    dispatched->key_count = (int64_t)dispatch->key_count;
    return result < 0 ? result : error;
}
