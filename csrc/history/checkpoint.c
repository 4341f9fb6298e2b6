/* The checkpoint: timelines of open jobs and read positions of folders, which a restart cannot read again.
 *
 * Layout: "bslives1", folders (their number; for each: length of key, key, file, offset, needed from), jobs (their
 * number; for each as below), and CRC-32C of everything before. Numbers have the machine's byte order, little-endian.
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

/* Followed by the known events: `leading` first ones and `trailing` last ones. */
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

/* The checkpoint being written, in history->checkpoint. */
typedef struct {
    bs_history *history;
    uint64_t jobs; /* written */
    int error;     /* of the first failure */
} output;

static void put(output *out, const void *data, size_t length)
{
    if (!out->error)
        out->error = bs_bytes_append(&out->history->checkpoint, data, length);
}

/* Returns false for a job that was not restored but has events before the checkpointed position: it had ended by then.
 */
static bool belongs_in_checkpoint(const bs_history *history, const bs_spot *spot)
{
    const bs_timeline *timeline = bs_timeline_of(spot);
    if (!timeline || timeline->restored)
        return timeline != NULL;
    const bs_follower *follower = history->followers[history->files[spot->full >> BS_HISTORY_OFFSET_BITS].folder];
    return !bs_position_before(bs_follower_position(follower), follower->checkpointed);
}

static int write_job(void *context, uint64_t id, const bs_spot *spot)
{
    output *out = context;
    const bs_timeline *timeline = bs_timeline_of(spot);
    const bs_timeline_limits *limits = &out->history->limits;
    if (!belongs_in_checkpoint(out->history, spot))
        return 0;
    out->jobs++;
    uint32_t leading = 0;
    uint32_t trailing = 0;
    while (leading < timeline->count && bs_timeline_knows(timeline, limits, leading))
        leading++;
    while (leading + trailing < timeline->count && bs_timeline_knows(timeline, limits, timeline->count - trailing - 1))
        trailing++;
    job_record record = {
        .id = id,
        .created_at = timeline->created_at,
        .deadline = timeline->deadline,
        .crc = timeline->crc,
        .put_pri = timeline->put_pri,
        .put_delay = timeline->put_delay,
        .count = timeline->count,
        .leading = leading,
        .trailing = trailing,
        .state = timeline->state,
    };
    memcpy(record.counters, timeline->counters, sizeof record.counters);
    put(out, &record, sizeof record);
    for (uint32_t i = 0; i < leading + trailing; i++) {
        const uint32_t number = i < leading ? i : timeline->count - trailing + (i - leading);
        const bs_timeline_event *event = &timeline->events[bs_timeline_slot(limits, number)];
        const event_record event_out = {event->at, event->pri, event->delay, event->kind};
        put(out, &event_out, sizeof event_out);
    }
    return out->error;
}

/* Saves the later one of read position and checkpointed position, because restored jobs have their events up to that. */
static void write_folder(output *out, const bs_follower *follower)
{
    bs_binlog_position position = bs_follower_position(follower);
    int64_t needed_from = bs_history_needed_from(out->history, follower->index);
    if (bs_position_before(position, follower->checkpointed))
        position = follower->checkpointed;
    if (follower->number == 0)
        needed_from = follower->bad_from;
    const folder_record record = {
        .key_length = (uint32_t)strlen(follower->key),
        .file = position.file,
        .offset = position.offset,
        .needed_from = (uint32_t)needed_from,
    };
    put(out, &record, sizeof record);
    put(out, follower->key, record.key_length);
}

const char *bs_history_save_checkpoint(bs_history *history, size_t *length)
{
    bs_bytes *bytes = &history->checkpoint;
    const uint64_t folders = history->follower_count;
    output out = {.history = history};
    bs_bytes_clear(bytes);
    put(&out, magic, sizeof magic);
    put(&out, &folders, sizeof folders);
    for (uint32_t i = 0; i < history->follower_count; i++)
        write_folder(&out, history->followers[i]);
    const size_t count_at = bytes->end;
    put(&out, &out.jobs, sizeof out.jobs);
    if (out.error || bs_index_each(&history->index, write_job, &out) != 0)
        return NULL;
    memcpy(bytes->memory + count_at, &out.jobs, sizeof out.jobs);
    const uint32_t crc = bs_crc32c(0, bs_bytes_data(bytes), bs_bytes_length(bytes));
    put(&out, &crc, sizeof crc);
    *length = bs_bytes_length(bytes);
    return out.error ? NULL : bs_bytes_data(bytes);
}

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

static int read_folder(bs_history *history, input *in)
{
    folder_record record;
    if (!take(in, &record, sizeof record) || record.key_length > BS_HISTORY_KEY_MAX)
        return -EBADMSG;
    bs_folder_checkpoint *saved = &history->checkpoints[history->checkpoint_count];
    *saved = (bs_folder_checkpoint){.position = {record.file, record.offset}, .needed_from = record.needed_from};
    if (!take(in, saved->key, record.key_length))
        return -EBADMSG;
    history->checkpoint_count++;
    return 0;
}

static int read_events(const bs_history *history, input *in, const job_record *record, bs_timeline *timeline)
{
    const bs_timeline_limits *limits = &history->limits;
    const uint32_t known_count = record->leading + record->trailing;
    for (uint32_t i = 0; i < known_count; i++) {
        event_record event;
        if (!take(in, &event, sizeof event) || event.kind == BS_TIMELINE_UNKNOWN || event.kind >= BS_TIMELINE_KINDS)
            return -EBADMSG;
        uint32_t number = i < record->leading ? i : record->count - known_count + i;
        if (bs_timeline_keeps(timeline, limits, number))
            timeline->events[bs_timeline_slot(limits, number)] =
                (bs_timeline_event){event.at, event.pri, event.delay, (uint8_t)event.kind};
    }
    return 0;
}

/* Returns 0 or a negative errno. */
static int read_timeline(const bs_history *history, input *in, const job_record *record, bs_timeline **created)
{
    const bs_entry none = {.id = 0};
    bs_timeline *timeline = bs_timeline_new(&none, &none);
    if (!timeline || bs_timeline_reserve(&timeline, &history->limits, record->count) != 0) {
        free(timeline);
        return -ENOMEM;
    }
    memset(timeline->events, BS_TIMELINE_UNKNOWN, timeline->capacity * sizeof *timeline->events);
    timeline->restored = true;
    timeline->created_at = record->created_at;
    timeline->deadline = record->deadline;
    memcpy(timeline->counters, record->counters, sizeof timeline->counters);
    timeline->crc = record->crc;
    timeline->put_pri = record->put_pri;
    timeline->put_delay = record->put_delay;
    timeline->count = record->count;
    timeline->state = record->state;
    int error = read_events(history, in, record, timeline);
    if (error)
        free(timeline);
    else
        *created = timeline;
    return error;
}

static int read_job(bs_history *history, input *in)
{
    job_record record;
    bs_spot spot;
    bs_timeline *timeline = NULL;
    if (!take(in, &record, sizeof record) || record.state > BS_DELAYED || record.leading > record.count ||
        record.trailing > record.count - record.leading || bs_index_get(&history->index, record.id, &spot))
        return -EBADMSG;
    int error = read_timeline(history, in, &record, &timeline);
    if (error)
        return error;
    spot = (bs_spot){.full = BS_HISTORY_NO_POSITION, .last_short = (uintptr_t)timeline, .tube = BS_INDEX_MANY};
    error = bs_index_put(&history->index, record.id, &spot);
    if (error)
        free(timeline);
    return error;
}

static int read_all(bs_history *history, input *in)
{
    uint64_t folders;
    uint64_t jobs;
    char start[sizeof magic];
    if (!take(in, start, sizeof start) || memcmp(start, magic, sizeof magic) != 0 ||
        !take(in, &folders, sizeof folders) || folders > BS_MAX_WORKERS)
        return -EBADMSG;
    history->checkpoints = calloc(folders + 1, sizeof *history->checkpoints);
    int error = history->checkpoints ? 0 : -ENOMEM;
    for (uint64_t i = 0; i < folders && !error; i++)
        error = read_folder(history, in);
    if (!error && !take(in, &jobs, sizeof jobs))
        error = -EBADMSG;
    for (uint64_t i = 0; !error && i < jobs; i++)
        error = read_job(history, in);
    return !error && in->left > 0 ? -EBADMSG : error;
}

static bool is_new(const bs_history *history)
{
    for (uint32_t i = 0; i < history->follower_count; i++)
        if (history->followers[i]->number != 0)
            return false;
    return history->index.count == 0 && !history->checkpoints;
}

int bs_history_load_checkpoint(bs_history *history, const char *data, size_t length)
{
    uint32_t crc;
    if (!is_new(history))
        return -EINVAL;
    if (length < sizeof crc)
        return -EBADMSG;
    memcpy(&crc, data + length - sizeof crc, sizeof crc);
    input in = {data, length - sizeof crc};
    if (bs_crc32c(0, in.at, in.left) != crc)
        return -EBADMSG;
    int error = read_all(history, &in);
    if (error) {
        bs_history_free_jobs(history);
        free(history->checkpoints);
        history->checkpoints = NULL;
        history->checkpoint_count = 0;
        return error;
    }
    for (uint32_t i = 0; i < history->follower_count; i++)
        bs_history_resume_folder(history, history->followers[i]);
    return 0;
}

void bs_history_resume_folder(bs_history *history, bs_follower *follower)
{
    for (size_t i = 0; i < history->checkpoint_count; i++) {
        const bs_folder_checkpoint *saved = &history->checkpoints[i];
        if (strcmp(saved->key, follower->key) != 0)
            continue;
        follower->bad_from = saved->needed_from;
        if (bs_position_before(follower->checkpointed, saved->position))
            follower->checkpointed = saved->position;
    }
}
