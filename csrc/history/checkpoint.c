/* What a restart cannot read again, as bytes: the jobs of which more is known than their put, and how far folders are
 * read.
 *
 * The layout: "bslives1", folders (their number; each one: length of key, key, file, offset, needed from), jobs (their
 * number; each one as below), and CRC-32C of all that. Numbers are little-endian as the machine's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "history/job_history.h"

static const char magic[8] = {'b', 's', 'l', 'i', 'v', 'e', 's', '1'};

typedef struct {
    uint32_t key_length;
    uint32_t file;
    uint64_t offset;
    uint32_t needed_from;
    uint32_t padding;
} folder_record;

/* Then its events that are known: `leading` first ones and `trailing` last ones. */
typedef struct {
    uint64_t id;
    int64_t created_at;
    int64_t deadline;
    uint32_t counters[BS_COUNTERS];
    uint32_t crc;
    uint32_t put_pri;
    uint32_t put_delay;
    uint32_t count;
    uint32_t leading;
    uint32_t trailing;
    uint8_t state;
    uint8_t padding[3];
} job_record;

typedef struct {
    int64_t at;
    uint32_t pri;
    uint32_t delay;
    uint64_t kind;
} event_record;

_Static_assert(sizeof(folder_record) == 24 && sizeof(job_record) == 72 && sizeof(event_record) == 24,
               "no hidden padding");

/* --- out -------------------------------------------------------------------------------------------------- */

static bool known(const bs_life *life, const bs_life_shape *shape, uint32_t number)
{
    return bs_life_keeps(life, shape, number) && life->events[bs_life_slot(shape, number)].kind != BS_LIFE_FORGOTTEN;
}

static int write_event(bs_bytes *out, const bs_life_event *event)
{
    event_record record = {event->at, event->pri, event->delay, event->kind};
    return bs_bytes_append(out, &record, sizeof record);
}

/* A job that was not carried in, but has events before the place to which all were known, had ended by then. */
static bool is_to_be_carried(const bs_lives *lives, const bs_spot *spot)
{
    const bs_life *life = bs_life_of(spot);
    if (!life || life->carried)
        return life != NULL;
    const bs_trail *trail = lives->trails[lives->files[spot->full >> BS_LIVES_OFFSET_BITS].folder];
    return !bs_log_before(bs_trail_place(trail), trail->carried);
}

static int write_job(void *context, uint64_t id, const bs_spot *spot)
{
    bs_lives *lives = context;
    const bs_life *life = bs_life_of(spot);
    const bs_life_shape *shape = &lives->shape;
    if (!is_to_be_carried(lives, spot))
        return 0;
    uint32_t leading = 0;
    uint32_t trailing = 0;
    while (leading < life->count && known(life, shape, leading))
        leading++;
    while (leading + trailing < life->count && known(life, shape, life->count - trailing - 1))
        trailing++;
    job_record record = {
        .id = id,
        .created_at = life->created_at,
        .deadline = life->deadline,
        .crc = life->crc,
        .put_pri = life->put_pri,
        .put_delay = life->put_delay,
        .count = life->count,
        .leading = leading,
        .trailing = trailing,
        .state = life->state,
    };
    memcpy(record.counters, life->counters, sizeof record.counters);
    int error = bs_bytes_append(&lives->carry, &record, sizeof record);
    for (uint32_t i = 0; i < leading && !error; i++)
        error = write_event(&lives->carry, &life->events[bs_life_slot(shape, i)]);
    for (uint32_t i = life->count - trailing; i < life->count && !error; i++)
        error = write_event(&lives->carry, &life->events[bs_life_slot(shape, i)]);
    return error;
}

typedef struct {
    const bs_lives *lives;
    uint64_t count;
} tally;

static int count_job(void *context, uint64_t id, const bs_spot *spot)
{
    tally *jobs = context;
    (void)id;
    jobs->count += is_to_be_carried(jobs->lives, spot);
    return 0;
}

static int write_folder(bs_bytes *out, const char *key, bs_log_place place, uint32_t needed_from)
{
    folder_record record = {(uint32_t)strlen(key), place.file, place.offset, needed_from, 0};
    int error = bs_bytes_append(out, &record, sizeof record);
    return error ? error : bs_bytes_append(out, key, record.key_length);
}

/* A folder that has not been read again as far as before: its jobs are known further than it is read. */
static int write_trail(bs_lives *lives, const bs_trail *trail)
{
    bs_log_place place = bs_trail_place(trail);
    int64_t needed_from = bs_lives_needed_from(lives, trail->index);
    if (bs_log_before(place, trail->carried))
        place = trail->carried;
    if (trail->number == 0)
        needed_from = trail->aside;
    return write_folder(&lives->carry, trail->key, place, (uint32_t)needed_from);
}

static int write_all(bs_lives *lives)
{
    bs_bytes *out = &lives->carry;
    uint64_t folders = lives->trail_count;
    tally jobs = {.lives = lives};
    out->start = out->end = 0;
    int error = bs_bytes_append(out, magic, sizeof magic);
    if (!error)
        error = bs_bytes_append(out, &folders, sizeof folders);
    for (uint32_t i = 0; i < lives->trail_count && !error; i++)
        error = write_trail(lives, lives->trails[i]);
    (void)bs_index_each(&lives->index, count_job, &jobs);
    if (!error)
        error = bs_bytes_append(out, &jobs.count, sizeof jobs.count);
    if (!error)
        error = bs_index_each(&lives->index, write_job, lives);
    uint32_t crc = error ? 0 : bs_crc32c(0, bs_bytes_data(out), bs_bytes_length(out));
    return error ? error : bs_bytes_append(out, &crc, sizeof crc);
}

const char *bs_lives_carry_out(bs_lives *lives, size_t *length)
{
    if (write_all(lives) != 0)
        return NULL;
    *length = bs_bytes_length(&lives->carry);
    return bs_bytes_data(&lives->carry);
}

/* --- in --------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *at;
    size_t left;
} input;

static bool take(input *in, void *to, size_t length)
{
    if (in->left < length)
        return false;
    memcpy(to, in->at, length);
    in->at += length;
    in->left -= length;
    return true;
}

static int read_folder(bs_lives *lives, input *in)
{
    folder_record record;
    if (!take(in, &record, sizeof record) || record.key_length > BS_LIVES_KEY)
        return -EBADMSG;
    bs_carried *carried = &lives->carried[lives->carried_count];
    *carried = (bs_carried){.place = {record.file, record.offset}, .needed_from = record.needed_from};
    if (!take(in, carried->key, record.key_length))
        return -EBADMSG;
    lives->carried_count++;
    return 0;
}

static int read_events(const bs_lives *lives, input *in, const job_record *record, bs_life *life)
{
    const bs_life_shape *shape = &lives->shape;
    const uint32_t known_count = record->leading + record->trailing;
    for (uint32_t i = 0; i < known_count; i++) {
        event_record event;
        if (!take(in, &event, sizeof event) || event.kind == BS_LIFE_FORGOTTEN || event.kind >= BS_LIFE_KINDS)
            return -EBADMSG;
        uint32_t number = i < record->leading ? i : record->count - known_count + i;
        if (bs_life_keeps(life, shape, number))
            life->events[bs_life_slot(shape, number)] =
                (bs_life_event){event.at, event.pri, event.delay, (uint8_t)event.kind};
    }
    return 0;
}

/* 0, or a negative errno. */
static int read_life(const bs_lives *lives, input *in, const job_record *record, bs_life **made)
{
    const bs_entry said = {
        .created_at = record->created_at,
        .reserves = record->counters[0],
        .timeouts = record->counters[1],
        .releases = record->counters[2],
        .buries = record->counters[3],
        .kicks = record->counters[4],
        .state = record->state,
        .at = record->deadline,
        .crc = record->crc,
    };
    bs_life *life = bs_life_new(&said, &said);
    if (!life || bs_life_room(&life, &lives->shape, record->count) != 0) {
        free(life);
        return -ENOMEM;
    }
    memset(life->events, BS_LIFE_FORGOTTEN, life->capacity * sizeof *life->events);
    life->carried = true;
    life->put_pri = record->put_pri;
    life->put_delay = record->put_delay;
    life->count = record->count;
    int error = read_events(lives, in, record, life);
    if (error)
        free(life);
    else
        *made = life;
    return error;
}

static int read_job(bs_lives *lives, input *in)
{
    job_record record;
    bs_spot spot;
    bs_life *life = NULL;
    if (!take(in, &record, sizeof record) || record.state > BS_DELAYED || record.leading > record.count ||
        record.trailing > record.count - record.leading || bs_index_get(&lives->index, record.id, &spot))
        return -EBADMSG;
    int error = read_life(lives, in, &record, &life);
    if (!error && (error = bs_lives_bring(lives, record.id, life)) != 0)
        free(life);
    return error;
}

static int read_all(bs_lives *lives, input *in)
{
    uint64_t folders;
    uint64_t jobs;
    char found[sizeof magic];
    if (!take(in, found, sizeof found) || memcmp(found, magic, sizeof magic) != 0 ||
        !take(in, &folders, sizeof folders) || folders > BS_MAX_WORKERS)
        return -EBADMSG;
    lives->carried = calloc(folders + 1, sizeof *lives->carried);
    int error = lives->carried ? 0 : -ENOMEM;
    for (uint64_t i = 0; i < folders && !error; i++)
        error = read_folder(lives, in);
    if (!error && !take(in, &jobs, sizeof jobs))
        error = -EBADMSG;
    for (uint64_t i = 0; !error && i < jobs; i++)
        error = read_job(lives, in);
    return !error && in->left > 0 ? -EBADMSG : error;
}

static bool is_new(const bs_lives *lives)
{
    for (uint32_t i = 0; i < lives->trail_count; i++)
        if (lives->trails[i]->number != 0)
            return false;
    return lives->index.count == 0 && !lives->carried;
}

static int drop_life(void *context, uint64_t id, const bs_spot *spot)
{
    (void)context;
    (void)id;
    free(bs_life_of(spot));
    return 0;
}

int bs_lives_carry_in(bs_lives *lives, const char *data, size_t length)
{
    uint32_t crc;
    if (!is_new(lives))
        return -EINVAL;
    if (length < sizeof crc)
        return -EBADMSG;
    memcpy(&crc, data + length - sizeof crc, sizeof crc);
    input in = {data, length - sizeof crc};
    if (bs_crc32c(0, in.at, in.left) != crc)
        return -EBADMSG;
    int error = read_all(lives, &in);
    if (error) {
        (void)bs_index_each(&lives->index, drop_life, NULL);
        bs_index_free(&lives->index);
        free(lives->carried);
        lives->carried = NULL;
        lives->carried_count = 0;
        return error;
    }
    for (uint32_t i = 0; i < lives->trail_count; i++)
        bs_lives_continue(lives, lives->trails[i]);
    return 0;
}

void bs_lives_continue(bs_lives *lives, bs_trail *trail)
{
    for (size_t i = 0; i < lives->carried_count; i++) {
        const bs_carried *carried = &lives->carried[i];
        if (strcmp(carried->key, trail->key) != 0)
            continue;
        trail->aside = carried->needed_from;
        if (bs_log_before(trail->carried, carried->place))
            trail->carried = carried->place;
    }
}
