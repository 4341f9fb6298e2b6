/* The end of a job: its topic, its timeline and its body become a message. */
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

/* The topic of a tube; NULL, and it is asked for. */
static const bs_name *topic_of(bs_lives *lives, uint32_t number, const bs_name *tube)
{
    if (number < lives->topic_capacity && lives->topics[number].name)
        return &lives->topics[number];
    if (number >= BS_INDEX_MANY && same_name(&lives->other, tube->name, tube->length))
        return &lives->other_topic;
    memcpy(lives->wanted, tube->name, tube->length);
    lives->wanted_length = tube->length;
    return NULL;
}

const char *bs_lives_tube(const bs_lives *lives, size_t *length)
{
    *length = lives->wanted_length;
    return lives->wanted;
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

int bs_lives_topic(bs_lives *lives, const char *topic, size_t length)
{
    enum { TOPIC_MAX = 255 };
    if (length == 0 || length > TOPIC_MAX || lives->wanted_length == 0)
        return -EINVAL;
    int64_t number = bs_names_number(&lives->names, lives->wanted, lives->wanted_length, BS_INDEX_MANY);
    if (number < 0)
        return (int)number;
    if (number == BS_INDEX_MANY) {
        int error = set_name(&lives->other_topic, topic, length);
        return error ? error : set_name(&lives->other, lives->wanted, lives->wanted_length);
    }
    if (number >= lives->topic_capacity) {
        uint32_t capacity = lives->names.capacity;
        bs_name *topics = realloc(lives->topics, capacity * sizeof *topics);
        if (!topics)
            return -ENOMEM;
        memset(topics + lives->topic_capacity, 0, (capacity - lives->topic_capacity) * sizeof *topics);
        lives->topics = topics;
        lives->topic_capacity = capacity;
    }
    return set_name(&lives->topics[number], topic, length);
}

/* --- the end ---------------------------------------------------------------------------------------------- */

/* Copies the body from where its entry lies. 0 or a negative errno. */
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

/* What an ended job's message is made of. */
typedef struct {
    bs_spot spot;
    bs_life *life;
    bs_entry full;  /* if `readable` is 0 */
    bs_scan *scan;  /* that has it */
    int readable;   /* or a negative errno */
    bs_name tube;
} end;

static int complain_of_full(bs_lives *lives, const end *of, uint64_t id, int error)
{
    const bs_lives_file *file = &lives->files[of->spot.full >> BS_LIVES_OFFSET_BITS];
    return bs_lives_complain(lives, file->folder, file->number, of->spot.full & BS_LIVES_OFFSET_MASK,
                             "the full entry of job %llu cannot be read any more: %s", (unsigned long long)id,
                             error == -ESTALE ? "it is damaged" : strerror(-error));
}

/* Appends the message. 0 or a negative errno, and then nothing has changed. */
static int write_message(bs_lives *lives, bs_trail *trail, end *of, const bs_name *topic)
{
    const bs_entry *last = &trail->scan.entry;
    const bool has_full = of->readable == 0;
    const uint32_t body_size = has_full ? of->full.body_size : last->body_size;
    bs_message message = {
        .tube = &of->tube,
        .topic = topic,
        .key = trail->key,
        .file = trail->number,
        .offset = trail->scan.at,
        .truncated = last->ended == BS_ENDED_TRUNCATED,
        .last = last,
        .life = of->life,
        .shape = &lives->shape,
        .body_size = body_size > 2 ? body_size - 2 : 0,
        .without_body = !has_full || body_size - 2 > lives->most_body,
    };
    int error = has_full ? 0 : complain_of_full(lives, of, last->id, of->readable);
    if (!error)
        error = bs_message_reserve(&lives->items, &message);
    if (!error)
        error = bs_life_add(&of->life, &lives->shape, last);
    if (error)
        return error;
    message.life = of->life;
    const size_t start = lives->items.end;
    char *body = bs_message_append(&lives->items, &message);
    error = message.without_body ? 0 : copy_body(body, of->scan, of->spot.full & BS_LIVES_OFFSET_MASK, &of->full);
    if (error) {
        lives->items.end = start;
        message.without_body = true;
        (void)bs_message_append(&lives->items, &message);
        (void)complain_of_full(lives, of, last->id, error);
    }
    lives->facts.left_out += message.without_body;
    lives->facts.finished++;
    lives->item_count++;
    return 0;
}

/* A job that is open ends. As bs_lives_take. */
int bs_lives_end(bs_lives *lives, bs_trail *trail, const bs_spot *spot)
{
    const uint64_t id = trail->scan.entry.id;
    end of = {.spot = *spot, .life = bs_life_of(spot)};
    of.readable = bs_lives_find_full(lives, id, spot, &of.full, &of.scan);
    if (of.readable != 0 && of.readable != -ENOENT && of.readable != -ESTALE &&
        bs_trail_tries_again(trail, trail->scan.at, of.readable))
        return of.readable;
    if (spot->tube < lives->names.count)
        of.tube = lives->names.names[spot->tube];
    else if (of.readable == 0)
        of.tube = (bs_name){(char *)of.full.name, of.full.name_length};
    if (!of.tube.name) {
        lives->facts.orphans++;
        bs_lives_forget(lives, id, spot);
        return 0;
    }
    const bs_name *topic = topic_of(lives, spot->tube, &of.tube);
    if (!topic)
        return BS_LIVES_TOPIC;
    const bool has_life = of.life != NULL;
    if (!has_life && !(of.life = bs_lives_life_of_put(spot, of.readable == 0 ? &of.full : NULL, &trail->scan.entry)))
        return -ENOMEM;
    int error = write_message(lives, trail, &of, topic);
    if (!has_life)
        free(of.life);
    of.spot.brief = has_life ? (uintptr_t)of.life : 0;
    if (error)
        return of.spot.brief == spot->brief ? error : bs_index_put(&lives->index, id, &of.spot) | error;
    bs_lives_forget(lives, id, &of.spot);
    return 0;
}
