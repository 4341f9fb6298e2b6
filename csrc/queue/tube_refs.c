#include "queue/tube_refs.h"

#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "queue/job_state.h"
#include "queue/published_heads.h"

/* --- tubes ------------------------------------------------------------------------------------------------ */

bs_tube *bs_refs_tube(bs_queue *queue, const char *name, size_t length)
{
    uint32_t shard = queue->workers > 1 ? bs_shard_of(name, length, queue->workers, queue->colocate) : queue->shard;
    bool remote = shard != queue->shard;
    bs_tube *tube =
        bs_tubes_get(remote ? &queue->remote_tubes : &queue->tubes, name, length, &queue->shared->last_tube);
    if (tube) {
        tube->shard = shard;
        tube->remote = remote;
    }
    queue->counters->tubes = queue->tubes.count;
    return tube;
}

static bs_tube *find_tube(const bs_queue *queue, const char *name, size_t length)
{
    bs_tube *tube = bs_tubes_find(&queue->tubes, name, length);
    return tube || queue->workers == 1 ? tube : bs_tubes_find(&queue->remote_tubes, name, length);
}

void bs_refs_free_unused(bs_queue *queue, bs_tube *tube)
{
    if (tube->jobs || tube->users || tube->watchers || tube->pins || tube->counts_changed ||
        tube == queue->default_tube || tube == queue->no_tube)
        return;
    if (tube->paced_until) {
        tube->lingers = true;
        bs_schedule_tube(queue, tube);
        return;
    }
    if (tube->place != BS_NO_PLACE)
        bs_heap_remove(&queue->tube_times, &bs_tube_kind, tube->place);
    bs_tubes_remove(tube->remote ? &queue->remote_tubes : &queue->tubes, tube);
    queue->counters->tubes = queue->tubes.count;
}

uint64_t bs_refs_unrouted(const bs_queue *queue, const bs_tube *tube)
{
    if (tube != queue->default_tube || queue->workers == 1)
        return 0;
    const bs_shared *shared = queue->shared;
    uint64_t unrouted = shared->parent.total_connections - shared->parent.closed_connections;
    for (uint32_t shard = 0; shard < queue->workers; shard++) {
        const bool reported = shard != queue->shard && queue->adopted[shard] != BS_ADOPTED_UNKNOWN;
        unrouted -= reported ? queue->adopted[shard] : shared->worker[shard].total_connections;
    }
    return (int64_t)unrouted > 0 ? unrouted : 0; /* the parent does not write its two numbers atomically */
}

/* --- counts ----------------------------------------------------------------------------------------------- */

static void counts_changed(bs_queue *queue, bs_tube *tube)
{
    if (!tube->remote || tube->counts_changed || tube == queue->no_tube)
        return;
    tube->counts_changed = true;
    tube->next_changed = NULL;
    *(queue->first_changed ? &queue->last_changed->next_changed : &queue->first_changed) = tube;
    queue->last_changed = tube;
}

/* A tube ends with its last reference, so it has a new number if another one comes before the counts are sent. */
static void renumber_unused(bs_queue *queue, bs_tube *tube)
{
    if (!tube->counts_changed || tube->users > 0 || tube->watchers > 0 || tube->pins > 0)
        return;
    tube->recreated = true;
    tube->counts_sent = false;
    tube->number = __atomic_add_fetch(&queue->shared->last_tube, 1, __ATOMIC_RELAXED);
}

/* `count` is the tube's users, watchers or pins. */
static void add_ref(bs_queue *queue, bs_tube *tube, uint32_t *count)
{
    renumber_unused(queue, tube);
    ++*count;
    counts_changed(queue, tube);
}

static void remove_ref(bs_queue *queue, bs_tube *tube, uint32_t *count)
{
    --*count;
    counts_changed(queue, tube);
    bs_refs_free_unused(queue, tube);
}

void bs_refs_pin(bs_queue *queue, bs_tube *tube)
{
    if (tube != queue->no_tube)
        add_ref(queue, tube, &tube->pins);
}

void bs_refs_unpin(bs_queue *queue, bs_tube *tube)
{
    if (tube != queue->no_tube)
        remove_ref(queue, tube, &tube->pins);
}

/* Other workers may know a new tube before its own worker; its number is the smallest of theirs. */
static void lower_number(bs_queue *queue, bs_tube *tube, uint64_t number)
{
    if (tube->number <= number)
        return;
    tube->number = number;
    if (tube->place != BS_NO_PLACE)
        bs_heap_change(&queue->tube_times, &bs_tube_kind, tube->place, queue->tube_times.slots[tube->place].key);
}

static bool no_refs(bs_peer_refs refs)
{
    return refs.users == 0 && refs.watchers == 0 && refs.pins == 0;
}

static void set_peer_refs(bs_queue *queue, bs_tube *tube, bs_peer_refs refs)
{
    uint8_t i = 0;
    while (i < tube->peer_ref_count && tube->peer_refs[i].peer != refs.peer)
        i++;
    if (i == tube->peer_ref_count && no_refs(refs))
        return;
    if (i == tube->peer_ref_count) {
        tube->peer_refs = bs_must_realloc(tube->peer_refs, (size_t)tube->peer_ref_count + 1, sizeof *tube->peer_refs);
        tube->peer_refs[tube->peer_ref_count++] = (bs_peer_refs){.peer = refs.peer};
    }
    tube->users += refs.users - tube->peer_refs[i].users;
    tube->watchers += refs.watchers - tube->peer_refs[i].watchers;
    tube->pins += refs.pins - tube->peer_refs[i].pins;
    refs.published = tube->peer_refs[i].published && refs.watchers > 0;
    tube->peer_refs[i] = refs;
    if (no_refs(refs))
        tube->peer_refs[i] = tube->peer_refs[--tube->peer_ref_count];
    bs_head_watchers_changed(queue, tube);
}

int bs_refs_set_peer_counts(bs_queue *queue, const char *name, size_t length, bs_peer_refs refs, uint64_t number)
{
    bs_tube *tube = bs_refs_tube(queue, name, length);
    if (!tube)
        return -ENOMEM;
    lower_number(queue, tube, number);
    set_peer_refs(queue, tube, refs);
    bs_refs_free_unused(queue, tube);
    return 0;
}

void bs_refs_drop_peer(bs_queue *queue, uint32_t peer)
{
    for (bs_tube *tube = queue->tubes.first, *next; tube; tube = next) {
        next = tube->next;
        if (tube->peer_ref_count == 0)
            continue;
        set_peer_refs(queue, tube, (bs_peer_refs){.peer = (uint8_t)peer});
        bs_refs_free_unused(queue, tube);
    }
}

bool bs_refs_take_changed(bs_queue *queue, bs_tube **tube, bool *unneeded)
{
    *tube = queue->first_changed;
    if (!*tube)
        return false;
    *unneeded = (*tube)->recreated;
    (*tube)->recreated = false;
    if (*unneeded)
        return true; /* the next call returns the counts */
    queue->first_changed = (*tube)->next_changed;
    (*tube)->counts_changed = false;
    return true;
}

void bs_refs_counts_sent(bs_queue *queue, bs_tube *tube)
{
    tube->counts_sent = tube->users || tube->watchers || tube->pins;
    bs_refs_free_unused(queue, tube);
}

void bs_refs_resend_all(bs_queue *queue, uint32_t shard)
{
    for (bs_tube *tube = queue->remote_tubes.first; tube; tube = tube->next) {
        if (tube->shard != shard)
            continue;
        tube->counts_sent = false;
        tube->head_slot = 0;
        if (tube->users || tube->watchers || tube->pins)
            counts_changed(queue, tube);
    }
}

/* --- sessions --------------------------------------------------------------------------------------------- */

bs_session *bs_refs_open_session(bs_queue *queue, bool moved)
{
    bs_session *session = bs_sessions_open(&queue->sessions);
    if (!session)
        return NULL;
    session->use = queue->default_tube;
    add_ref(queue, session->use, &session->use->users);
    if (!moved && bs_refs_watch(queue, session, "default", 7) != 0) {
        remove_ref(queue, session->use, &session->use->users);
        bs_sessions_close(&queue->sessions, session);
        return NULL;
    }
    queue->counters->connections++;
    if (moved)
        queue->counters->moved_in++;
    else
        queue->counters->total_connections++;
    queue->adopted_new = queue->adopted_new || (!moved && queue->workers > 1);
    return session;
}

bs_session *bs_refs_open_proxy(bs_queue *queue)
{
    bs_session *session = bs_sessions_open(&queue->sessions);
    if (!session)
        return NULL;
    session->proxy = true;
    session->use = queue->no_tube;
    session->use->users++;
    return session;
}

bs_session *bs_refs_open_mover(bs_queue *queue)
{
    bs_session *session = bs_refs_open_proxy(queue);
    if (!session)
        return NULL;
    session->peer = (uint8_t)queue->shard;
    session->mover = true;
    return session;
}

static void stop_watching(bs_queue *queue, const bs_session *session, bs_tube *tube)
{
    remove_ref(queue, tube, session->proxy ? &tube->pins : &tube->watchers);
}

void bs_refs_end(bs_queue *queue, const bs_session *session)
{
    remove_ref(queue, session->use, &session->use->users);
    for (uint32_t i = 0; i < session->watch_count; i++)
        stop_watching(queue, session, session->watches[i].tube);
}

static void use(bs_queue *queue, bs_session *session, bs_tube *tube)
{
    bs_tube *old = session->use;
    add_ref(queue, tube, &tube->users);
    session->use = tube;
    remove_ref(queue, old, &old->users);
}

int bs_refs_use(bs_queue *queue, bs_session *session, const char *name, size_t length)
{
    bs_tube *tube = bs_refs_tube(queue, name, length);
    if (!tube)
        return -ENOMEM;
    use(queue, session, tube);
    return 0;
}

void bs_refs_use_none(bs_queue *queue, bs_session *session)
{
    use(queue, session, queue->no_tube);
}

static uint32_t find_watch(const bs_session *session, const bs_tube *tube)
{
    uint32_t i = 0;
    while (i < session->watch_count && session->watches[i].tube != tube)
        i++;
    return i;
}

bool bs_refs_watches(const bs_session *session, const bs_tube *tube)
{
    return find_watch(session, tube) < session->watch_count;
}

int bs_refs_watch(bs_queue *queue, bs_session *session, const char *name, size_t length)
{
    bs_tube *tube = bs_refs_tube(queue, name, length);
    if (!tube)
        return -ENOMEM;
    if (find_watch(session, tube) < session->watch_count)
        return 0;
    if (session->watch_count == session->watch_capacity) {
        uint32_t capacity = session->watch_capacity ? session->watch_capacity * 2 : 1;
        bs_watch *watches = realloc(session->watches, capacity * sizeof *watches);
        if (!watches) {
            bs_refs_free_unused(queue, tube);
            return -ENOMEM;
        }
        session->watches = watches;
        session->watch_capacity = capacity;
    }
    add_ref(queue, tube, session->proxy ? &tube->pins : &tube->watchers);
    session->watches[session->watch_count++] = (bs_watch){.session = session, .tube = tube};
    return 0;
}

int bs_refs_ignore(bs_queue *queue, bs_session *session, const char *name, size_t length)
{
    bs_tube *tube = find_tube(queue, name, length);
    uint32_t i = find_watch(session, tube);
    if (!tube || i == session->watch_count)
        return 0;
    if (session->watch_count == 1 && !session->proxy)
        return -EBUSY;
    session->watches[i] = session->watches[--session->watch_count]; /* the order of C beanstalkd's list-tubes-watched */
    stop_watching(queue, session, tube);
    return 0;
}
