/* The end of a job: its tube, timeline and body become a message. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_io.h"
#include "history/job_history.h"
#include "history/message.h"


/* --- topics ----------------------------------------------------------------------------------------------- */

static bool same_name(const bs_name *known, const char *name, size_t length)
{
    return known->name && known->length == length && memcmp(known->name, name, length) == 0;
}

/* Returns the topic of a tube; NULL if the caller has to provide it. */
static const bs_name *topic_of(bs_history *history, uint32_t number, const bs_name *tube)
{
    if (number < history->topic_capacity && history->topics[number].name)
        return &history->topics[number];
    if (number >= BS_INDEX_MANY && same_name(&history->other, tube->name, tube->length))
        return &history->other_topic;
    memcpy(history->wanted, tube->name, tube->length);
    history->wanted_length = tube->length;
    return NULL;
}

const char *bs_history_tube(const bs_history *history, size_t *length)
{
    *length = history->wanted_length;
    return history->wanted;
}

static int set_name(bs_name *name, const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, text, length);
    free(name->name);
    *name = (bs_name){copy, (uint32_t)length};
    return 0;
}

int bs_history_set_topic(bs_history *history, const char *topic, size_t length)
{
    enum { TOPIC_MAX = 255 };
    if (length == 0 || length > TOPIC_MAX || history->wanted_length == 0)
        return -EINVAL;
    int64_t number = bs_names_number(&history->names, history->wanted, history->wanted_length, BS_INDEX_MANY);
    if (number < 0)
        return (int)number;
    if (number == BS_INDEX_MANY) {
        int error = set_name(&history->other_topic, topic, length);
        return error ? error : set_name(&history->other, history->wanted, history->wanted_length);
    }
    if (number >= history->topic_capacity) {
        uint32_t capacity = history->names.capacity;
        bs_name *topics = realloc(history->topics, capacity * sizeof *topics);
        if (!topics)
            return -ENOMEM;
        memset(topics + history->topic_capacity, 0, (capacity - history->topic_capacity) * sizeof *topics);
        history->topics = topics;
        history->topic_capacity = capacity;
    }
    return set_name(&history->topics[number], topic, length);
}

/* --- the end ---------------------------------------------------------------------------------------------- */

/* Copies the body from its entry. Returns 0 or a negative errno. */
static int copy_body(char *to, bs_scan *scan, uint64_t offset, const bs_entry *full)
{
    const size_t length = full->body_size - 2;
    if (full->body) {
        memcpy(to, full->body, length);
        return 0;
    }
    for (size_t at = 0; at < length;) {
        ssize_t got = bs_io.read(scan->fd, to + at, length - at, (off_t)(offset + full->head + at));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        at += (size_t)got;
    }
    return 0;
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
static int write_message(bs_history *history, bs_follower *follower, end *of, const bs_name *topic)
{
    const bs_entry *last = &follower->scan.entry;
    const bool has_full = of->readable == 0;
    const uint32_t body_size = has_full ? of->full.body_size : last->body_size;
    bs_message message = {
        .tube = &of->tube,
        .topic = topic,
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
    error = message.without_body ? 0 : copy_body(body, of->scan, of->spot.full & BS_HISTORY_OFFSET_MASK, &of->full);
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
    if (spot->tube < history->names.count)
        of.tube = history->names.names[spot->tube];
    else if (of.readable == 0)
        of.tube = (bs_name){(char *)of.full.name, of.full.name_length};
    if (!of.tube.name) {
        history->facts.orphans++;
        bs_history_forget(history, id, spot);
        return 0;
    }
    const bs_name *topic = topic_of(history, spot->tube, &of.tube);
    if (!topic)
        return BS_HISTORY_TOPIC;
    const bool has_timeline = of.timeline != NULL;
    if (!has_timeline)
        of.timeline =
            bs_history_timeline_of_put(spot, of.readable == 0 ? &of.full : NULL, &follower->scan.entry);
    if (!of.timeline)
        return -ENOMEM;
    int error = write_message(history, follower, &of, topic);
    if (!has_timeline)
        free(of.timeline);
    of.spot.last_short = has_timeline ? (uintptr_t)of.timeline : 0;
    if (error)
        return of.spot.last_short == spot->last_short ? error : bs_index_put(&history->index, id, &of.spot) | error;
    bs_history_forget(history, id, &of.spot);
    return 0;
}
