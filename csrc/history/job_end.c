/* The end of a job: its tube, timeline and body become a message. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "history/job_history.h"
#include "history/message.h"

/* Returns the tube of a job with its topic; without topic if the caller has to provide it. */
static const bs_name *with_topic(bs_history *history, uint32_t number, const bs_name *tube)
{
    const bs_name *other = &history->other;
    if (number < history->names.count)
        tube = &history->names.names[number];
    else if (other->name && other->length == tube->length && memcmp(other->name, tube->name, tube->length) == 0)
        tube = other;
    memcpy(history->wanted, tube->name, tube->length);
    history->wanted_length = tube->length;
    return tube;
}

const char *bs_history_tube(const bs_history *history, size_t *length)
{
    *length = history->wanted_length;
    return history->wanted;
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
    if (length == 0 || length > UINT8_MAX || history->wanted_length == 0)
        return -EINVAL;
    int64_t number = bs_names_number(&history->names, history->wanted, history->wanted_length, BS_INDEX_MANY);
    if (number < 0)
        return (int)number;
    bs_name *tube = number == BS_INDEX_MANY ? &history->other : &history->names.names[number];
    int error = 0;
    if (tube == &history->other) {
        error = set_text(&tube->name, history->wanted, history->wanted_length);
        tube->length = history->wanted_length;
    }
    if (!error)
        error = set_text(&tube->topic, topic, length);
    tube->topic_length = (uint8_t)length;
    return error;
}

/* The inputs of a message. */
typedef struct {
    bs_spot spot;
    bs_timeline *timeline;
    bs_entry full;  /* if `readable` is 0 */
    bs_scan *scan;  /* has the full entry */
    int readable;   /* or a negative errno */
    bs_name tube;
} end;

static int add_full_entry_fault(bs_history *history, const end *of, uint64_t id, int error)
{
    const bs_history_file *file = &history->files[of->spot.full >> BS_HISTORY_OFFSET_BITS];
    return bs_history_add_fault(history, file->folder, file->number, of->spot.full & BS_HISTORY_OFFSET_MASK,
                             "the full entry of job %llu cannot be read any more: %s", (unsigned long long)id,
                             error == -ESTALE ? "it is damaged" : strerror(-error));
}

/* Appends the message. Returns 0 or a negative errno, after which nothing has changed. */
static int write_message(bs_history *history, bs_follower *follower, end *of)
{
    const bs_entry *last = &follower->scan.entry;
    const bool has_full = of->readable == 0;
    const uint32_t body_size = has_full ? of->full.body_size : last->body_size;
    bs_message message = {
        .tube = &of->tube,
        .key = follower->key,
        .file = follower->number,
        .offset = follower->scan.at,
        .truncated = last->ended == BS_ENDED_TRUNCATED,
        .last = last,
        .timeline = of->timeline,
        .limits = &history->limits,
        .body_size = body_size > 2 ? body_size - 2 : 0,
        .without_body = !has_full || body_size - 2 > history->most_body,
    };
    int error = has_full ? 0 : add_full_entry_fault(history, of, last->id, of->readable);
    if (!error)
        error = bs_message_reserve(&history->items, &message);
    if (!error)
        error = bs_timeline_add(&of->timeline, &history->limits, last);
    if (error)
        return error;
    message.timeline = of->timeline;
    const size_t start = history->items.end;
    char *body = bs_message_append(&history->items, &message);
    if (!message.without_body)
        error = bs_scan_copy_body(of->scan, of->spot.full & BS_HISTORY_OFFSET_MASK, &of->full, message.body_size, body);
    if (error) {
        history->items.end = start;
        message.without_body = true;
        (void)bs_message_append(&history->items, &message);
        (void)add_full_entry_fault(history, of, last->id, error);
    }
    history->facts.left_out += message.without_body;
    history->facts.finished++;
    history->item_count++;
    return 0;
}

int bs_history_end_job(bs_history *history, bs_follower *follower, const bs_spot *spot)
{
    const uint64_t id = follower->scan.entry.id;
    end of = {.spot = *spot, .timeline = bs_timeline_of(spot)};
    of.readable = bs_history_find_full(history, id, spot, &of.full, &of.scan);
    if (of.readable != 0 && of.readable != -ENOENT && of.readable != -ESTALE &&
        bs_follower_retries(follower, follower->scan.at, of.readable))
        return of.readable;
    if (of.readable == 0)
        of.tube = (bs_name){.name = (char *)of.full.name, .length = of.full.name_length};
    if (!of.tube.name && spot->tube >= history->names.count) {
        history->facts.orphans++;
        bs_history_forget(history, id, spot);
        return 0;
    }
    of.tube = *with_topic(history, spot->tube, &of.tube);
    if (!of.tube.topic)
        return BS_HISTORY_TOPIC;
    const bool has_timeline = of.timeline != NULL;
    if (!has_timeline)
        of.timeline =
            bs_history_timeline_of_put(spot, of.readable == 0 ? &of.full : NULL, &follower->scan.entry);
    if (!of.timeline)
        return -ENOMEM;
    int error = write_message(history, follower, &of);
    if (!has_timeline)
        free(of.timeline);
    of.spot.last_short = has_timeline ? (uintptr_t)of.timeline : 0;
    if (error)
        return of.spot.last_short == spot->last_short ? error : bs_index_put(&history->index, id, &of.spot) | error;
    bs_history_forget(history, id, &of.spot);
    return 0;
}
