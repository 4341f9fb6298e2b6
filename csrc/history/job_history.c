#include "history/job_history.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what is wrong ---------------------------------------------------------------------------------------- */

int bs_lives_complain(bs_lives *lives, uint32_t folder, uint32_t file, uint64_t offset, const char *format, ...)
{
    if (lives->mistakes_told == lives->mistake_count)
        lives->mistakes_told = lives->mistake_count = 0;
    if (lives->mistake_count == lives->mistake_capacity) {
        size_t capacity = lives->mistake_capacity ? lives->mistake_capacity * 2 : 16;
        bs_lives_mistake *grown = realloc(lives->mistakes, capacity * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        lives->mistakes = grown;
        lives->mistake_capacity = capacity;
    }
    bs_lives_mistake *mistake = &lives->mistakes[lives->mistake_count++];
    *mistake = (bs_lives_mistake){.folder = folder, .file = file, .offset = offset};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(mistake->what, sizeof mistake->what, format, arguments);
    va_end(arguments);
    return 0;
}

int bs_lives_mistake_next(bs_lives *lives, uint32_t *folder, uint32_t *file, uint64_t *offset, const char **what)
{
    if (lives->mistakes_told == lives->mistake_count)
        return 0;
    const bs_lives_mistake *mistake = &lives->mistakes[lives->mistakes_told++];
    *folder = mistake->folder;
    *file = mistake->file;
    *offset = mistake->offset;
    *what = mistake->what;
    return 1;
}

/* --- full entries ----------------------------------------------------------------------------------------- */

static uint64_t place_of(uint32_t file, uint64_t offset)
{
    return (uint64_t)file << BS_LIVES_OFFSET_BITS | offset;
}

/* Is this still the entry that was read before? */
static bool believed(const bs_entry *entry, uint64_t id, uint32_t number)
{
    bool of_this_file = entry->marked && entry->tag == (uint16_t)number;
    return entry->id == id && entry->name_length > 0 && (entry->sound || !of_this_file);
}

int bs_lives_find_full(bs_lives *lives, uint64_t id, const bs_spot *spot, bs_entry *entry, bs_scan **scan)
{
    if (spot->full == BS_LIVES_NOWHERE)
        return -ENOENT;
    const uint32_t index = (uint32_t)(spot->full >> BS_LIVES_OFFSET_BITS);
    const uint64_t offset = spot->full & BS_LIVES_OFFSET_MASK;
    const bs_lives_file *file = &lives->files[index];
    bs_trail *trail = lives->trails[file->folder];
    const bool current = trail->fd >= 0 && trail->file == index;
    bs_scan *here = &trail->scan;
    if (current && offset >= here->window_at && offset < here->window_at + here->window_length) {
        size_t before = (size_t)(offset - here->window_at);
        *scan = here;
        if (bs_entry_decode(here->window + before, here->window_length - before, here->version, entry) > 0)
            return believed(entry, id, file->number) ? 0 : -ESTALE;
    }
    const uint64_t length = current && !trail->whole ? here->length : UINT64_MAX;
    int64_t size = BS_ENTRY_CUT;
    for (uint64_t needed = offset + 1; size == BS_ENTRY_CUT; needed = length) {
        int error = 0;
        bs_full_window *window =
            bs_full_entries_window(&lives->fulls, trail->dir_fd, file->folder, file->number, needed, length, &error);
        if (!window)
            return error;
        *scan = &window->scan;
        size = bs_scan_check(*scan, offset, entry, &error);
        if (error)
            return error;
        if (needed == length)
            break;
    }
    return size > 0 && believed(entry, id, file->number) ? 0 : -ESTALE;
}

/* The same, for what an entry makes of its job. *again: 0, or an error that may be over at the next call. */
static bool find_old(bs_lives *lives, bs_trail *trail, const bs_spot *spot, bs_entry *full, int *again)
{
    bs_scan *scan;
    int error = bs_lives_find_full(lives, trail->scan.entry.id, spot, full, &scan);
    bool lasting = error == 0 || error == -ENOENT || error == -ESTALE;
    *again = !lasting && bs_trail_tries_again(trail, trail->scan.at, error) ? error : 0;
    return error == 0;
}

static bool find_job(void *context, uint64_t id, bs_scan_job *job)
{
    bs_lives *lives = context;
    bs_spot spot;
    bs_entry entry;
    bs_scan *scan;
    if (!bs_index_get(&lives->index, id, &spot) || bs_lives_find_full(lives, id, &spot, &entry, &scan) != 0)
        return false;
    const bs_entry *found = &lives->reading->scan.entry;
    if (found->created_at != entry.created_at)
        return false; /* another job with its id */
    *job = (bs_scan_job){entry.name, entry.name_length, entry.body_size};
    return true;
}

static bool last_crc_of(void *context, uint64_t id, uint32_t *crc)
{
    bs_lives *lives = context;
    bs_spot spot;
    bs_entry entry;
    bs_scan *scan;
    if (!bs_index_get(&lives->index, id, &spot))
        return false;
    if (spot.brief) {
        *crc = bs_life_of(&spot)->crc;
        return true;
    }
    if (bs_lives_find_full(lives, id, &spot, &entry, &scan) != 0)
        return false;
    *crc = entry.crc;
    return true;
}

bs_scan_jobs bs_lives_jobs(bs_lives *lives)
{
    return (bs_scan_jobs){.context = lives, .find = find_job, .last_crc = last_crc_of};
}

/* --- jobs come and go ------------------------------------------------------------------------------------- */

static void leave(bs_lives *lives, const bs_spot *spot)
{
    if (spot->full == BS_LIVES_NOWHERE)
        return;
    uint32_t index = (uint32_t)(spot->full >> BS_LIVES_OFFSET_BITS);
    lives->files[index].jobs--;
    bs_lives_leave_file(lives, index);
}

void bs_lives_forget(bs_lives *lives, uint64_t id, const bs_spot *spot)
{
    bs_index_remove(&lives->index, id);
    free(bs_life_of(spot));
    leave(lives, spot);
}

int bs_lives_bring(bs_lives *lives, uint64_t id, bs_life *life)
{
    bs_spot spot = {.full = BS_LIVES_NOWHERE, .brief = (uintptr_t)life, .tube = BS_INDEX_MANY};
    return bs_index_put(&lives->index, id, &spot);
}

/* Of a job that has only been put: does this next entry say all that its full entry does, without its body? */
static bool tells_put(const bs_spot *spot, const bs_entry *entry)
{
    return spot->body_size == BS_READY && entry->releases == 0 && entry->buries == 0; /* these give it a priority */
}

bs_life *bs_lives_life_of_put(const bs_spot *spot, const bs_entry *full, const bs_entry *entry)
{
    bs_life *life = bs_life_new(entry, full ? full : entry);
    if (!life)
        return NULL;
    memset(life->counters, 0, sizeof life->counters);
    life->state = BS_READY;
    life->deadline = 0;
    if (spot->body_size == BS_DELAYED && full) {
        life->state = BS_DELAYED;
        life->deadline = full->at;
    }
    return life;
}

static bool only_put(const bs_entry *entry)
{
    return !(entry->reserves | entry->timeouts | entry->releases | entry->buries | entry->kicks) &&
           (entry->state == BS_READY || entry->state == BS_DELAYED);
}

/* A job of which nothing was known; `spot` has its place and tube. 0 or -ENOMEM. */
static int begin_job(bs_lives *lives, const bs_entry *entry, bs_spot *spot)
{
    bs_life *life = NULL;
    if (!only_put(entry) && !(life = bs_life_new(entry, entry)))
        return -ENOMEM;
    spot->brief = (uintptr_t)life;
    spot->body_size = entry->state;
    int error = bs_index_put(&lives->index, entry->id, spot);
    if (error)
        free(life);
    return error;
}

/* A full entry of a known job puts it elsewhere. What it says more than was known counts as any other entry does, if
 * `counts`. `before` is the last one, or NULL. `*life` is what is to be known of it, made if need be. 0 or -ENOMEM. */
static int copy_job(const bs_lives *lives, const bs_entry *entry, const bs_spot *old, const bs_entry *before,
                    bool counts, bs_life **life)
{
    const bool differs = before && (before->pri != entry->pri || before->delay != entry->delay);
    const bool is_due = old->body_size == BS_DELAYED && entry->state == BS_READY;
    if (!*life && (differs || is_due || !only_put(entry)) && !(*life = bs_lives_life_of_put(old, before, entry)))
        return -ENOMEM;
    if (!*life)
        return 0;
    if (counts && bs_life_grown(*life, entry)) {
        int error = bs_life_add(life, &lives->shape, entry);
        if (error)
            return error;
    } else if (counts) {
        return bs_life_copy(life, &lives->shape, entry);
    }
    return 0;
}

/* Is what entries before the restart say known already? */
static bool is_carried(const bs_spot *spot)
{
    return spot->brief && bs_life_of(spot)->carried;
}

/* The job is known, and this entry is another job's that has its id now? `before` is its last full entry, or NULL. */
static bool is_another(const bs_entry *entry, const bs_spot *spot, const bs_entry *before)
{
    if (spot->brief)
        return bs_life_of(spot)->created_at != entry->created_at;
    return before && before->created_at != entry->created_at;
}

/* 0 or a negative errno. */
static int move_job(bs_lives *lives, bs_trail *trail, const bs_entry *entry, const bs_spot *old, bs_spot *spot)
{
    const bs_log_place place = {trail->number, trail->scan.at};
    const bool counts = !(is_carried(old) && bs_log_before(place, trail->carried));
    bs_entry before;
    int again;
    const bool has_before = find_old(lives, trail, old, &before, &again);
    if (again)
        return again;
    if (is_another(entry, old, has_before ? &before : NULL)) {
        int error = begin_job(lives, entry, spot);
        if (error)
            return error;
        free(bs_life_of(old));
        return 0;
    }
    bs_life *life = bs_life_of(old);
    int error = copy_job(lives, entry, old, has_before ? &before : NULL, counts, &life);
    spot->brief = (uintptr_t)life;
    if (!error)
        error = bs_index_put(&lives->index, entry->id, spot); /* one with a life has its room there */
    if (error && !old->brief)
        free(life);
    return error;
}

static int take_full(bs_lives *lives, bs_trail *trail)
{
    const bs_entry entry = trail->scan.entry; /* its numbers; looking elsewhere may take its name away */
    const int64_t tube = bs_names_number(&lives->names, entry.name, entry.name_length, BS_INDEX_MANY);
    if (tube < 0)
        return (int)tube;
    bs_spot old;
    bs_spot spot = {.full = place_of(trail->file, trail->scan.at), .tube = (uint32_t)tube, .body_size = entry.state};
    const bool known = bs_index_get(&lives->index, entry.id, &old);
    int error = known ? move_job(lives, trail, &entry, &old, &spot) : begin_job(lives, &entry, &spot);
    if (error)
        return error;
    lives->files[trail->file].jobs++;
    if (known)
        leave(lives, &old);
    return 0;
}

static int take_short(bs_lives *lives, bs_trail *trail, bool before_carried)
{
    const bs_entry *entry = &trail->scan.entry;
    bs_spot spot;
    if (!bs_index_get(&lives->index, entry->id, &spot) || (before_carried && is_carried(&spot)))
        return 0;
    bs_entry full;
    int again = 0;
    bs_life *life = bs_life_of(&spot);
    const bool new = !life;
    const bool has_full = new && !tells_put(&spot, entry) && find_old(lives, trail, &spot, &full, &again);
    if (again)
        return again;
    if (new && !(life = bs_lives_life_of_put(&spot, has_full ? &full : NULL, entry)))
        return -ENOMEM;
    int error = bs_life_add(&life, &lives->shape, entry);
    if (!error && (uintptr_t)life != spot.brief) {
        spot.brief = (uintptr_t)life;
        error = bs_index_put(&lives->index, entry->id, &spot);
    }
    if (error && new)
        free(life);
    return error;
}

/* --- entries ----------------------------------------------------------------------------------------------- */

static int take_end(bs_lives *lives, bs_trail *trail, bool before_carried, bool archived)
{
    const bs_scan *scan = &trail->scan;
    bs_spot spot;
    if (bs_entry_is_last_id(&scan->entry))
        return 0;
    if (!bs_index_get(&lives->index, scan->entry.id, &spot)) {
        lives->facts.orphans += !archived && scan->at != BS_ENTRY_HEADER;
        return 0;
    }
    if (before_carried && is_carried(&spot))
        return 0;
    if (archived) {
        bs_lives_forget(lives, scan->entry.id, &spot);
        return 0;
    }
    return bs_lives_end(lives, trail, &spot);
}

int bs_lives_take(bs_lives *lives, bs_trail *trail)
{
    const bs_entry *entry = &trail->scan.entry;
    const bs_log_place place = {trail->number, trail->scan.at};
    const bool before_carried = bs_log_before(place, trail->carried);
    if (entry->state == BS_INVALID)
        return take_end(lives, trail, before_carried,
                        trail->any_archived && !bs_log_before(trail->archived, place));
    if (entry->name_length > 0)
        return take_full(lives, trail);
    return take_short(lives, trail, before_carried);
}

/* --- what Python calls ------------------------------------------------------------------------------------ */

int bs_lives_new(uint64_t most_body, uint32_t most_events, bs_lives **made)
{
    if (most_events < 2)
        return -EINVAL;
    bs_lives *lives = calloc(1, sizeof *lives);
    if (!lives)
        return -ENOMEM;
    if (most_events > BS_LIVES_EVENTS)
        most_events = BS_LIVES_EVENTS;
    lives->shape = (bs_life_shape){most_events / 2 - 1, most_events - most_events / 2}; /* the put is one, too */
    lives->most_body = most_body < INT32_MAX / 2 ? (uint32_t)most_body : INT32_MAX / 2;
    bs_index_init(&lives->index, sizeof(uint64_t));
    int error = bs_full_entries_init(&lives->fulls);
    if (error) {
        bs_lives_free(lives);
        return error;
    }
    *made = lives;
    return 0;
}

typedef struct {
    uint64_t *ids;
    size_t count;
    size_t capacity;
} id_list;

static int note_unseen(void *context, uint64_t id, const bs_spot *spot)
{
    id_list *list = context;
    if (spot->full != BS_LIVES_NOWHERE)
        return 0;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 64;
        uint64_t *grown = realloc(list->ids, capacity * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        list->ids = grown;
        list->capacity = capacity;
    }
    list->ids[list->count++] = id;
    return 0;
}

int bs_lives_drop_unseen(bs_lives *lives)
{
    id_list list = {0};
    int error = bs_index_each(&lives->index, note_unseen, &list);
    for (size_t i = 0; i < list.count && !error; i++) {
        bs_spot spot;
        if (bs_index_get(&lives->index, list.ids[i], &spot))
            bs_lives_forget(lives, list.ids[i], &spot);
    }
    free(list.ids);
    return error;
}

static int free_life(void *context, uint64_t id, const bs_spot *spot)
{
    (void)context;
    (void)id;
    free(bs_life_of(spot));
    return 0;
}

void bs_lives_free(bs_lives *lives)
{
    if (!lives)
        return;
    (void)bs_index_each(&lives->index, free_life, NULL);
    bs_index_free(&lives->index);
    for (uint32_t i = 0; i < lives->trail_count; i++)
        bs_trail_free(lives->trails[i]);
    bs_full_entries_free(&lives->fulls);
    bs_names_free(&lives->names);
    for (uint32_t i = 0; i < lives->topic_capacity; i++)
        free(lives->topics[i].name);
    free(lives->topics);
    free(lives->other.name);
    free(lives->other_topic.name);
    bs_bytes_free(&lives->items);
    bs_bytes_free(&lives->carry);
    free(lives->files);
    free(lives->mistakes);
    free(lives->carried);
    free(lives);
}

const char *bs_lives_items(const bs_lives *lives, size_t *length, uint64_t *count)
{
    *length = bs_bytes_length(&lives->items);
    *count = lives->item_count;
    return *length ? bs_bytes_data(&lives->items) : NULL;
}

const bs_lives_facts *bs_lives_said(bs_lives *lives)
{
    lives->facts.open = lives->index.count;
    return &lives->facts;
}
