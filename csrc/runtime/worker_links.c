#include "runtime/worker_links.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "commands/command_stream.h"
#include "queue/published_heads.h"
#include "queue/tube_refs.h"
#include "runtime/connection.h"
#include "server/remote_state.h"
#include "workers/barrier.h"
#include "workers/claims.h"
#include "workers/remote_commands.h"
#include "workers/remote_moves.h"
#include "workers/reserve_requests.h"
#include "workers/shard_waits.h"

enum {
    MESSAGES_PER_TURN = 32, /* at once, so that one worker does not block clients and other workers */
    MESSAGES_PER_ROUND = 128, /* from all rings */
    FEW_BYTES = 4096,       /* a shorter message is most likely the last one; if not, the socket is still readable */
    RING_WORKERS_MAX = 32   /* more would need a ring of 64 KiB for each of more than a thousand pairs */
};

void bs_links_init(bs_core *core)
{
    for (uint32_t shard = 0; shard < BS_MAX_WORKERS; shard++)
        core->peers[shard] = BS_NO_PEER;
}

void bs_links_free(bs_core *core)
{
    for (uint32_t shard = 0; shard < BS_MAX_WORKERS; shard++) {
        bs_outbox_free(&core->server.outboxes[shard]);
        bs_peer_close(&core->peers[shard]);
    }
}

static void must_append(bs_bytes *bytes, const char *data, size_t length)
{
    if (bs_bytes_append(bytes, data, length) != 0)
        abort(); /* received bytes can be neither refused nor dropped */
}

/* --- in --------------------------------------------------------------------------------------------------- */

static void report_end(bs_core *core, uint32_t shard, int kind)
{
    bs_peer *peer = &core->peers[shard];
    (void)epoll_ctl(core->epoll_fd, EPOLL_CTL_DEL, peer->fd, NULL); /* it would stay readable */
    peer->gone = peer->reported = true;
    (void)bs_upcalls_add(&core->server.upcalls, kind, shard, 0);
}

/* Later frames of the core wait until Python has handled this one. */
static void add_upcall(bs_core *core, uint32_t shard, int kind, const bs_frame *frame, int fd)
{
    bs_queued_upcall *queued = bs_upcalls_add(&core->server.upcalls, kind, shard, frame->header.number);
    core->peers[shard].awaits_python = true;
    queued->upcall.fd = fd;
    must_append(&queued->bytes, frame->content, frame->header.length);
}

static void take_output(bs_core *core, uint32_t shard, const bs_frame *frame)
{
    bs_session *session = bs_core_find(core, frame->header.number);
    if (!session || (session->proxy && !session->mover))
        return;
    if (session->finding_job)
        add_upcall(core, shard, BS_UPCALL_OUTPUT, frame, -1);
    else
        bs_relay_output(&core->server, session, shard, frame->content, frame->header.length);
}

/* Sends that worker, which watches the tube, the slot in which its head is published. */
static void send_published(bs_core *core, uint32_t shard, const char *name, size_t length)
{
    char content[sizeof(uint32_t) + UINT8_MAX];
    const bs_tube *tube = bs_tubes_find(&core->server.queue.tubes, name, length);
    for (uint8_t i = 0; tube && tube->head_slot && i < tube->peer_ref_count; i++) {
        bs_peer_refs *refs = &tube->peer_refs[i];
        if (refs->peer != shard || refs->watchers == 0 || refs->published)
            continue;
        refs->published = true;
        memcpy(content, &tube->head_slot, sizeof tube->head_slot);
        memcpy(content + sizeof tube->head_slot, name, length);
        bs_outbox_must_add(&core->server.outboxes[shard], BS_FRAME_PUBLISHED, tube->head_key, content,
                           sizeof tube->head_slot + length);
    }
}

static int take_published(bs_core *core, const bs_frame *frame)
{
    uint32_t slot;
    if (frame->header.length < sizeof slot)
        return -EBADMSG;
    memcpy(&slot, frame->content, sizeof slot);
    if (slot == 0 || slot > BS_PUBLISHED_HEADS)
        return -EBADMSG;
    bs_tube *tube = bs_tubes_find(&core->server.queue.remote_tubes, frame->content + sizeof slot,
                                  frame->header.length - sizeof slot);
    if (!tube)
        return 0; /* it is not watched any more */
    tube->head_slot = slot;
    tube->head_key = frame->header.number;
    return 0;
}

static int take_count(bs_core *core, uint32_t shard, const bs_frame *frame)
{
    bs_peer_refs refs;
    if (frame->header.length < sizeof refs)
        return -EBADMSG;
    memcpy(&refs, frame->content, sizeof refs);
    refs.peer = (uint8_t)shard;
    const char *name = frame->content + sizeof refs;
    const size_t length = frame->header.length - sizeof refs;
    if (!bs_tube_name_valid(name, length))
        return -EBADMSG;
    if (bs_refs_set_peer_counts(&core->server.queue, name, length, refs, frame->header.number) != 0)
        abort(); /* a tube must be known to its worker */
    send_published(core, shard, name, length);
    return 0;
}

static int take_census(bs_core *core, uint32_t shard, const bs_frame *frame, bs_now now)
{
    bs_census content;
    if (frame->header.length != sizeof content)
        return -EBADMSG;
    memcpy(&content, frame->content, sizeof content);
    bs_barrier_census(&core->server, shard, &content, now);
    return 0;
}

/* 0 or -EBADMSG. */
static int execute_frame(bs_core *core, uint32_t shard, const bs_frame *frame, bs_now now)
{
    const uint64_t number = frame->header.number;
    const uint32_t kind = frame->header.kind;
    bs_session *session;
    if (number == 0 && kind != BS_FRAME_PYTHON && kind != BS_FRAME_COUNT && kind != BS_FRAME_CENSUS)
        return -EBADMSG;
    switch (kind) {
    case BS_FRAME_PYTHON:
        add_upcall(core, shard, BS_UPCALL_FRAME, frame, -1);
        return 0;
    case BS_FRAME_FEED:
        session = bs_proxy_for(core, shard, number);
        if (session && !session->closing && !session->broken)
            bs_stream_feed(&core->server, session, frame->content, frame->header.length, now);
        return 0;
    case BS_FRAME_CLOSE:
        bs_proxy_close(core, shard, number, now);
        return 0;
    case BS_FRAME_OUTPUT:
        take_output(core, shard, frame);
        return 0;
    case BS_FRAME_ENDED:
        session = bs_core_find(core, number);
        if (session && session->mover)
            bs_remote_moves_restart(&core->server, shard);
        else if (session && !session->proxy)
            bs_core_end_session(core, session, now);
        return 0;
    case BS_FRAME_COUNT:
        return take_count(core, shard, frame);
    case BS_FRAME_CENSUS:
        return take_census(core, shard, frame, now);
    case BS_FRAME_SYNC:
        bs_barrier_requested(&core->server, shard, number);
        return 0;
    case BS_FRAME_SYNCED:
        bs_barrier_answered(&core->server, shard, number, now);
        return 0;
    case BS_FRAME_ARRIVED:
        bs_barrier_arrival_confirmed(&core->server, shard, number);
        return 0;
    case BS_FRAME_PUBLISHED:
        return take_published(core, frame);
    default:
        break;
    }
    if (kind == BS_FRAME_AWAIT || kind == BS_FRAME_AWAITED) {
        session = kind == BS_FRAME_AWAIT ? bs_proxy_for(core, shard, number) : bs_core_find(core, number);
        return bs_shard_wait_frame(&core->server, session, shard, frame, now);
    }
    if (kind < BS_FRAME_HEAD || kind > BS_FRAME_CANCELLED)
        return -EBADMSG;
    session = kind < BS_FRAME_HEAD_IS ? bs_proxy_for(core, shard, number) : bs_core_find(core, number);
    return bs_reserve_frame(&core->server, session, shard, frame, now);
}

/* Processes whole frames at the front; returns how many bytes. */
static size_t take_frames(bs_core *core, uint32_t shard, const char *bytes, size_t length, bs_now now)
{
    const bs_peer *peer = &core->peers[shard];
    size_t done = 0;
    while (done < length) {
        bs_frame frame;
        const int64_t size = bs_frame_read(bytes + done, length - done, &frame);
        if (size == 0)
            break;
        if (size > 0 && peer->awaits_python && frame.header.kind != BS_FRAME_PYTHON)
            break;
        if (size < 0 || execute_frame(core, shard, &frame, now) != 0) {
            report_end(core, shard, BS_UPCALL_PROTOCOL_ERROR);
            return length;
        }
        done += (size_t)size;
    }
    return done;
}

static void take_message(bs_core *core, uint32_t shard, const char *bytes, size_t length, bs_now now)
{
    bs_bytes *in = &core->peers[shard].in;
    if (bs_bytes_length(in) == 0) {
        size_t done = take_frames(core, shard, bytes, length, now);
        must_append(in, bytes + done, length - done);
    } else {
        must_append(in, bytes, length);
        bs_bytes_take(in, take_frames(core, shard, bs_bytes_data(in), bs_bytes_length(in), now));
    }
}

/* A descriptor travels with exactly one frame. */
static void take_descriptor(bs_core *core, uint32_t shard, const char *bytes, size_t length, int fd)
{
    bs_frame frame;
    if (bs_bytes_length(&core->peers[shard].in) == 0 && bs_frame_read(bytes, length, &frame) == (int64_t)length &&
        frame.header.kind == BS_FRAME_PYTHON) {
        add_upcall(core, shard, BS_UPCALL_FRAME, &frame, fd);
        return;
    }
    (void)close(fd);
    report_end(core, shard, BS_UPCALL_PROTOCOL_ERROR);
}

/* Returns the length of the message, 0 or less without one. */
static ssize_t read_message(bs_core *core, uint32_t shard, bs_now now)
{
    int fd;
    bs_peer *peer = &core->peers[shard];
    const ssize_t length = bs_peer_receive(peer, core->received, &fd);
    if (length == 0)
        return 0;
    core->server.queue.counters->peer_bytes_in += length > 0 ? (uint64_t)length : 0;
    if (core->server.queue.unresponsive[shard])
        bs_claims_peer_responds(&core->server, shard, now);
    core->server.barriers.late[shard] = false;
    if (length < 0) {
        bs_close(fd);
        report_end(core, shard, length == -EPIPE ? BS_UPCALL_PEER_CLOSED : BS_UPCALL_PROTOCOL_ERROR);
    } else if (fd >= 0) {
        take_descriptor(core, shard, core->received, (size_t)length, fd);
    } else {
        take_message(core, shard, core->received, (size_t)length, now);
    }
    return length;
}

void bs_link_ready(bs_core *core, uint32_t shard, bs_now now)
{
    bs_peer *peer = &core->peers[shard];
    for (int i = 0; i < MESSAGES_PER_TURN && peer->fd >= 0 && !peer->awaits_python && !peer->reported; i++) {
        if (peer->reads_ring && !peer->next_in_socket && !peer->hung_up)
            return; /* the ring announces what is in the socket */
        if (read_message(core, shard, now) < FEW_BYTES && !peer->hung_up)
            return;
    }
}

/* --- rings ------------------------------------------------------------------------------------------------ */

/* Returns the worker with the oldest message, or the number of workers. */
static uint32_t oldest_message(const bs_core *core)
{
    const uint32_t workers = core->server.queue.workers;
    uint32_t oldest = workers;
    uint64_t lowest = UINT64_MAX;
    for (uint32_t shard = 0; shard < workers; shard++) {
        uint64_t ticket;
        if (!bs_peer_first_message(&core->peers[shard], &ticket) || ticket >= lowest)
            continue;
        oldest = shard;
        lowest = ticket;
    }
    return oldest;
}

void bs_links_read_rings(bs_core *core, bs_now now)
{
    const uint32_t workers = core->server.queue.workers;
    uint32_t shard = workers;
    for (int i = 0; i < MESSAGES_PER_ROUND && (shard = oldest_message(core)) < workers; i++)
        (void)read_message(core, shard, now);
    for (shard = 0; shard < workers; shard++)
        bs_peer_wake_writer(&core->peers[shard]);
}

bool bs_links_have_messages(const bs_core *core)
{
    return oldest_message(core) < core->server.queue.workers;
}

static bool can_write(const bs_core *core)
{
    for (uint32_t shard = 0; shard < core->server.queue.workers; shard++)
        if (bs_outbox_length(&core->server.outboxes[shard]) > 0 && bs_peer_has_space(&core->peers[shard]))
            return true;
    return false;
}

static uint32_t *asleep(const bs_core *core)
{
    return &core->server.queue.shared->inbox[core->server.queue.shard].asleep;
}

bool bs_links_sleep(bs_core *core)
{
    if (core->server.queue.workers == 1)
        return true;
    /* A writer puts its message before it looks at the flag, so one of the two sees what the other has stored. */
    __atomic_store_n(asleep(core), core->incarnation, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (!bs_links_have_messages(core) && !can_write(core))
        return true;
    bs_links_awake(core);
    return false;
}

void bs_links_awake(bs_core *core)
{
    if (core->server.queue.workers > 1)
        __atomic_store_n(asleep(core), 0, __ATOMIC_RELAXED);
}

int bs_core_resume_peers(bs_core *core, bs_now now)
{
    bs_latency_begin(&core->server.latency, now.mono);
    for (uint32_t shard = 0; shard < core->server.queue.workers; shard++) {
        bs_peer *peer = &core->peers[shard];
        if (!peer->awaits_python)
            continue;
        peer->awaits_python = false;
        bs_bytes_take(&peer->in,
                      take_frames(core, shard, bs_bytes_data(&peer->in), bs_bytes_length(&peer->in), now));
        bs_core_resume_sessions(core, now);
    }
    return core->server.upcalls.count > 0;
}

/* --- out -------------------------------------------------------------------------------------------------- */

static int watch_socket(const bs_core *core, uint32_t shard, int op, bool writable)
{
    return bs_core_epoll(core, op, core->peers[shard].fd, BS_PEER_TAG | shard, EPOLLIN | (writable ? EPOLLOUT : 0U));
}

static void send_to(bs_core *core, uint32_t shard)
{
    bs_peer *peer = &core->peers[shard];
    bs_outbox *outbox = &core->server.outboxes[shard];
    const size_t before = bs_outbox_length(outbox);
    core->sent_to_worker = true;
    const bool left = bs_peer_send(peer, outbox) == BS_SOCKET_FULL;
    core->server.queue.counters->peer_bytes_out += before - bs_outbox_length(outbox);
    if (left != peer->wants_out && !peer->reported && watch_socket(core, shard, EPOLL_CTL_MOD, left) == 0)
        peer->wants_out = left; /* only fails without memory: retried in the next round */
    bool busy = bs_outbox_length(outbox) > (size_t)(peer->busy ? BS_PEER_BUSY_BYTES / 2 : BS_PEER_BUSY_BYTES);
    if (busy == peer->busy)
        return;
    peer->busy = busy;
    bs_remote_set_peer_state(&core->server, shard, busy ? BS_PEER_BUSY : BS_PEER_UP);
    core->round_due = true;
}

/* Sends the outboxes with, or those without, the end of a wait (L5). */
static void send_outboxes(bs_core *core, bool waited)
{
    for (uint32_t shard = 0; shard < core->server.queue.workers; shard++) {
        bs_outbox *outbox = &core->server.outboxes[shard];
        const bool anything = core->peers[shard].wants_out || bs_outbox_length(outbox) > 0;
        if (outbox->has_waited == waited && core->peers[shard].fd >= 0 && anything)
            send_to(core, shard);
        outbox->has_waited = outbox->has_waited && (waited || bs_outbox_length(outbox) > 0);
    }
}

void bs_links_send(bs_core *core)
{
    if (core->server.queue.workers == 1)
        return;
    bs_heads_publish(&core->server.queue);
    bs_counts_send(&core->server);
    send_outboxes(core, true);
    send_outboxes(core, false);
}

void bs_core_flush(bs_core *core)
{
    if (!core->fatal)
        bs_links_send(core);
}

int bs_core_send(bs_core *core, uint32_t shard, uint32_t kind, uint64_t id, const char *content, size_t length, int fd)
{
    int error = core->peers[shard].fd < 0 ? -ENOTCONN : 0;
    if (!error && id) {
        bs_session *session = bs_core_find(core, id);
        bs_remote *remote = session ? bs_remote_of(&core->server, session) : NULL;
        error = remote ? 0 : -ENOENT;
        if (remote)
            bs_shard_set_add(&remote->contacted_shards, shard);
    }
    if (!error)
        return bs_outbox_add_frame(&core->server.outboxes[shard], kind, id, content, length, fd);
    bs_close(fd);
    return error;
}

/* --- links ------------------------------------------------------------------------------------------------ */

int bs_core_add_peer(bs_core *core, uint32_t shard, int fd, bs_now now)
{
    if (shard >= core->server.queue.workers || core->peers[shard].fd >= 0) {
        (void)close(fd);
        return -EINVAL;
    }
    core->peers[shard].fd = fd;
    int error = watch_socket(core, shard, EPOLL_CTL_ADD, false);
    if (error) {
        bs_peer_close(&core->peers[shard]);
        return error;
    }
    core->peers[shard].inbox = &core->server.queue.shared->inbox[shard];
    if (core->server.queue.workers <= RING_WORKERS_MAX)
        bs_peer_offer_ring(&core->peers[shard], &core->server.outboxes[shard], core->wake_fd, core->incarnation);
    bs_remote_set_peer_state(&core->server, shard, BS_PEER_UP);
    bs_reserves_peer_changed(&core->server, shard, now);
    bs_shard_waits_peer_changed(&core->server, shard);
    bs_core_resume_sessions(core, now);
    bs_core_wake(core);
    return 0;
}

void bs_core_lose_peer(bs_core *core, uint32_t shard, bs_now now)
{
    bs_latency_begin(&core->server.latency, now.mono);
    bs_peer *peer = &core->peers[shard];
    for (size_t i = 0; i < peer->proxies.capacity; i++) {
        bs_session *session = bs_core_find(core, peer->proxies.slots[i].proxy);
        if (session)
            bs_core_end_session(core, session, now);
    }
    bs_peer_close(peer);
    bs_refs_drop_peer(&core->server.queue, shard);
    bs_remote_set_peer_state(&core->server, shard, BS_PEER_DOWN);
    bs_remote_moves_fail(&core->server, shard);
    bs_outbox_free(&core->server.outboxes[shard]);
    bs_barrier_down(&core->server, shard, now);
    bs_reserves_peer_changed(&core->server, shard, now);
    bs_shard_waits_peer_changed(&core->server, shard);
    bs_core_resume_sessions(core, now);
    bs_core_wake(core);
}
