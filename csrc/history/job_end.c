/* The end of a job: its tube, timeline and body become a message of the history store, in the layout of hs_item
 * (store/store.h). The properties are text; they have the names of stats-job where it has them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "history/job_history.h"
#include "store/store.h"

enum { NAME_END = 1, PAIR_END = 2, PROPERTIES_BESIDES = 1024, ALIGNMENT = 8 };

typedef struct {
    bs_history *history;
    bs_follower *follower;
    const bs_entry *last; /* the entry that ended the job */
    bs_spot spot;
    bs_timeline *timeline; /* includes the end when the message is appended */
    bs_entry full; /* if `full_error` is 0 */
    bs_scan *scan; /* has the full entry */
    int full_error; /* why the full entry cannot be read: a negative errno, or 0 */
    bs_name tube;
    uint32_t body_size; /* without the CR LF */
    bool without_body;
} job_end;

/* --- topics ----------------------------------------------------------------------------------------------- */

/* Returns the tube of a job with its topic; the topic is NULL until bs_history_set_topic. */
static const bs_name *tube_with_topic(bs_history *history, uint32_t number, const bs_name *tube)
{
    const bs_name *other = &history->unnumbered_tube;
    if (number < history->names.count)
        tube = &history->names.names[number];
    else if (other->name && other->length == tube->length && memcmp(other->name, tube->name, tube->length) == 0)
        tube = other;
    memcpy(history->topicless, tube->name, tube->length);
    history->topicless_length = tube->length;
    return tube;
}

const char *bs_history_tube(const bs_history *history, size_t *length)
{
    *length = history->topicless_length;
    return history->topicless;
}

/* Replaces an owned text by a copy of these bytes. Returns 0 or -ENOMEM. */
static int set_text(char **text, const char *bytes, size_t length)
{
    char *copy = malloc(length);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, bytes, length);
    free(*text);
    *text = copy;
    return 0;
}

int bs_history_set_topic(bs_history *history, const char *topic, size_t length)
{
    if (length == 0 || length > UINT8_MAX || history->topicless_length == 0)
        return -EINVAL;
    int64_t number = bs_names_number(&history->names, history->topicless, history->topicless_length, BS_INDEX_MANY);
    if (number < 0)
        return (int)number;
    bs_name *tube = number == BS_INDEX_MANY ? &history->unnumbered_tube : &history->names.names[number];
    int error = 0;
    if (tube == &history->unnumbered_tube) {
        error = set_text(&tube->name, history->topicless, history->topicless_length);
        tube->length = history->topicless_length;
    }
    if (!error)
        error = set_text(&tube->topic, topic, length);
    tube->topic_length = (uint8_t)length;
    return error;
}

/* --- messages --------------------------------------------------------------------------------------------- */

static char *begin_property(char *out, const char *name)
{
    out = bs_write_text(out, name);
    *out = NAME_END;
    return out + 1;
}

static char *end_property(char *out)
{
    *out = PAIR_END;
    return out + 1;
}

static char *text_property(char *out, const char *name, const char *text, size_t length)
{
    return end_property(bs_write_bytes(begin_property(out, name), text, length));
}

static char *number_property(char *out, const char *name, uint64_t number)
{
    return end_property(bs_write_number(begin_property(out, name), number));
}

static char *write_properties(char *out, const job_end *end)
{
    const bs_entry *last = end->last;
    const char *tag = bs_ended_names[last->ended];
    out = text_property(out, "TUBE", end->tube.name, end->tube.length);
    out = number_property(out, "KEYS", last->id);
    out = text_property(out, "TAGS", tag, strlen(tag));
    out = bs_write_text(begin_property(out, "UNIQ_KEY"), end->follower->key);
    out = bs_write_number(bs_write_text(out, "-"), end->follower->number);
    out = bs_write_number(bs_write_text(out, "-"), end->follower->scan.at);
    out = end_property(out);
    out = number_property(out, "pri", last->pri);
    out = number_property(out, "delay", bs_seconds(last->delay));
    out = number_property(out, "ttr", bs_seconds(last->ttr));
    out = number_property(out, "reserves", last->reserves);
    out = number_property(out, "timeouts", last->timeouts);
    out = number_property(out, "releases", last->releases);
    out = number_property(out, "buries", last->buries);
    out = number_property(out, "kicks", last->kicks);
    out = bs_timeline_write(begin_property(out, "timeline"), end->timeline, &end->history->limits);
    out = end_property(out);
    return end->without_body ? number_property(out, "body-bytes", end->body_size) : out;
}

/* Reserves memory for the message with four more events than its timeline has now. Returns 0 or -ENOMEM. */
static int reserve_message(const job_end *end)
{
    const uint32_t kept = end->history->limits.head + end->history->limits.tail;
    const uint32_t count = end->timeline->count;
    const size_t events = (count < kept ? count : kept) + (size_t)5;
    const size_t most = events * BS_TIMELINE_TEXT_MAX + HS_ITEM_HEAD + end->tube.topic_length + PROPERTIES_BESIDES +
                        (end->without_body ? 0 : end->body_size) + ALIGNMENT;
    return bs_bytes_reserve(&end->history->items, most) ? 0 : -ENOMEM;
}

/* Appends the message to reserved memory; returns where to copy its body. */
static char *append_message(const job_end *end)
{
    bs_bytes *items = &end->history->items;
    char *item = items->memory + items->end;
    char *properties = bs_write_bytes(item + HS_ITEM_HEAD, end->tube.topic, end->tube.topic_length);
    char *body = write_properties(properties, end);
    const uint32_t body_length = end->without_body ? 0 : end->body_size;
    const size_t length = (size_t)(body - item) + body_length;
    const size_t padding = -length % ALIGNMENT;
    memset(item + length, 0, padding);
    const uint32_t reserves = end->last->reserves;
    const hs_item head = {
        .size = (uint32_t)(length + padding),
        .born_timestamp = end->timeline->created_at / BS_MILLISECOND,
        .reconsume_times = reserves > (uint32_t)INT32_MAX ? INT32_MAX : reserves ? (int32_t)reserves - 1 : 0,
        .body_length = body_length,
        .topic_length = end->tube.topic_length,
        .properties_length = (uint16_t)(body - properties),
        .born_ip = {127, 0, 0, 1},
        .store_ip = {127, 0, 0, 1},
    };
    memcpy(item, &head, sizeof head);
    bs_bytes_extend(items, length + padding);
    return body;
}

/* --- the end of a job ------------------------------------------------------------------------------------- */

static int add_full_entry_fault(const job_end *end, int error)
{
    const bs_history_file *file = &end->history->files[end->spot.full >> BS_HISTORY_OFFSET_BITS];
    return bs_history_add_fault(end->history, file->folder, file->number, end->spot.full & BS_HISTORY_OFFSET_MASK,
                                "the full entry of job %llu cannot be read any more: %s",
                                (unsigned long long)end->last->id,
                                error == -ESTALE ? "it is damaged" : strerror(-error));
}

/* Appends the message. Returns 0 or a negative errno, after which nothing has changed. */
static int write_message(job_end *end)
{
    bs_history *history = end->history;
    const uint32_t body_size = end->full_error ? end->last->body_size : end->full.body_size;
    end->body_size = body_size > 2 ? body_size - 2 : 0;
    end->without_body = end->full_error || body_size - 2 > history->most_body;
    int error = end->full_error ? add_full_entry_fault(end, end->full_error) : 0;
    if (!error)
        error = reserve_message(end);
    if (!error)
        error = bs_timeline_add(&end->timeline, &history->limits, end->last);
    if (error)
        return error;
    const size_t start = history->items.end;
    char *body = append_message(end);
    if (!end->without_body)
        error = bs_scan_copy_body(end->scan, end->spot.full & BS_HISTORY_OFFSET_MASK, &end->full, end->body_size, body);
    if (error) {
        history->items.end = start;
        end->without_body = true;
        (void)append_message(end);
        (void)add_full_entry_fault(end, error);
    }
    history->stats.left_out += end->without_body;
    history->stats.finished++;
    history->item_count++;
    return 0;
}

int bs_history_end_job(bs_history *history, bs_follower *follower, const bs_spot *spot)
{
    const bs_entry *last = &follower->scan.entry;
    job_end end = {
        .history = history, .follower = follower, .last = last, .spot = *spot, .timeline = bs_timeline_of(spot)};
    end.full_error = bs_history_find_full(history, last->id, spot, &end.full, &end.scan);
    if (end.full_error && end.full_error != -ENOENT && end.full_error != -ESTALE &&
        bs_follower_retries(follower, follower->scan.at, end.full_error))
        return end.full_error;
    if (!end.full_error)
        end.tube = (bs_name){.name = (char *)end.full.name, .length = end.full.name_length};
    if (!end.tube.name && spot->tube >= history->names.count) {
        history->stats.orphans++;
        bs_history_forget(history, last->id, spot);
        return 0;
    }
    end.tube = *tube_with_topic(history, spot->tube, &end.tube);
    if (!end.tube.topic)
        return BS_HISTORY_TOPIC;
    const bool has_timeline = end.timeline != NULL;
    if (!has_timeline)
        end.timeline = bs_history_timeline_of_put(spot, end.full_error ? NULL : &end.full, last);
    if (!end.timeline)
        return -ENOMEM;
    int error = write_message(&end);
    if (!has_timeline)
        free(end.timeline);
    end.spot.last_short = has_timeline ? (uintptr_t)end.timeline : 0;
    if (error && end.spot.last_short != spot->last_short) /* the timeline has moved */
        (void)bs_index_put(&history->index, last->id, &end.spot); /* does not fail for a job with a timeline */
    if (error)
        return error;
    bs_history_forget(history, last->id, &end.spot);
    return 0;
}
