#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>

#include "api/server.h"
#include "api/transfer.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/folder.h"
#include "binlog_files/entry.h"
#include "commands/command_stream.h"
#include "commands/long_commands.h"
#include "commands/waiting.h"
#include "queue/published_heads.h"
#include "queue/job_waits.h"
#include "queue/queue.h"
#include "queue/tube_refs.h"
#include "runtime/connection.h"
#include "runtime/round.h"
#include "runtime/worker_links.h"
#include "server/replies.h"
#include "server/timeout_schedule.h"
#include "server/trace.h"
#include "workers/barrier.h"
#include "workers/global_limits.h"
#include "workers/claims.h"
#include "workers/remote_moves.h"

/* The binlog stores times that are computed from both clocks, so a preemption between the two readings would falsify
 * them. Within this time, in nanoseconds, the readings count as one moment; otherwise they are repeated. */
#define CLOCKS_APART (10 * BS_MICROSECOND)
enum { CLOCK_READINGS = 4 };

bs_now bs_now_read(void)
{
    struct timespec wall;
    int64_t mono, after = bs_clock_mono();
    int left = CLOCK_READINGS;
    do {
        mono = after;
        (void)clock_gettime(CLOCK_REALTIME, &wall); /* cannot fail either */
        after = bs_clock_mono();
    } while (after - mono > CLOCKS_APART && --left > 0);
    const int64_t last = BS_TIME_LAST / BS_SECOND - 1;
    const int64_t second = wall.tv_sec < 0 ? 0 : wall.tv_sec < last ? wall.tv_sec : last;
    return (bs_now){mono, second * BS_SECOND + wall.tv_nsec};
}

/* --- life ------------------------------------------------------------------------------------------------- */

static bool open_descriptors(bs_core *core)
{
    core->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    core->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    core->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (core->epoll_fd < 0 || core->timer_fd < 0 || core->wake_fd < 0)
        return false;
    /* Tagged by their own numbers; session ids are above 32 bits. Each write and expiry is an edge, so they are
     * not read. */
    return bs_core_epoll(core, EPOLL_CTL_ADD, core->timer_fd, (uint64_t)core->timer_fd, EPOLLIN | EPOLLET) == 0 &&
           bs_core_epoll(core, EPOLL_CTL_ADD, core->wake_fd, (uint64_t)core->wake_fd, EPOLLIN | EPOLLET) == 0;
}

/* Replaces a string of the caller by a copy. */
static bool own_string(const char **string)
{
    const char *from = *string;
    *string = from ? strdup(from) : NULL;
    return *string || !from;
}

bs_core *bs_core_new(const bs_config *config, bs_shared *shared, bs_now now)
{
    (void)now;
    bs_core *core = calloc(1, sizeof *core);
    if (!core)
        return NULL;
    core->config = *config;
    core->config.workers = config->workers ? config->workers : 1;
    core->epoll_fd = core->timer_fd = core->wake_fd = core->channel_fd = core->watched_fd = -1;
    core->replica.offer_fd = core->replica.stored_fd = -1;
    core->timer_at = INT64_MAX;
    bs_links_init(core);
    bs_server *server = &core->server;
    server->max_job_size = config->max_job_size;
    server->limits.output = BS_OUTPUT_DEFAULT;
    shared->worker[config->worker].binlog_max_size = (uint64_t)config->file_size;
    server->dirty.which = BS_LIST_DIRTY;
    server->held.which = BS_LIST_HELD;
    server->runnable.which = BS_LIST_RUNNABLE;
    server->more_input.which = BS_LIST_MORE_INPUT;
    server->reserving.which = BS_LIST_RESERVING;
    server->asking.which = BS_LIST_ASKING;
    server->queue.shared = shared;
    server->queue.shard = core->config.workers > 1 ? config->worker : 0;
    server->queue.workers = core->config.workers;
    server->queue.counters = &shared->worker[config->worker];
    server->latency.histograms = server->queue.counters->latency;
    server->queue.served = bs_execute_served;
    server->queue.context = server;
    server->resume = bs_stream_resume;
    if (server->queue.workers > 1) {
        bs_heads_clear(&server->queue);
        core->incarnation = ++shared->inbox[config->worker].incarnations;
    }
    const bool has_folder = own_string(&core->config.binlog_dir);
    const bool has_colocate = own_string(&core->config.colocate);
    server->queue.colocate = core->config.colocate;
    if (!has_folder || !has_colocate || bs_queue_init(&server->queue) != 0 || !open_descriptors(core)) {
        bs_core_free(core);
        return NULL;
    }
    return core;
}

static int failed_to_recover(bs_core *core, int error)
{
    const char *folder = core->config.binlog_dir;
    if (error == BS_ERR_LOCKED)
        (void)snprintf(core->error, sizeof core->error, "binlog folder %s is locked by another process", folder);
    else if (error == BS_ERR_FOLDER)
        (void)snprintf(core->error, sizeof core->error, "binlog folder %s does not exist or is no folder", folder);
    else if (error == BS_ERR_BINLOG && core->binlog->failed_file == 0)
        (void)snprintf(core->error, sizeof core->error, "cannot sync binlog folder %s: %s", folder,
                       strerror(-core->binlog->failed));
    else if (error == BS_ERR_BINLOG)
        (void)snprintf(core->error, sizeof core->error, "cannot %s binlog.%u in binlog folder %s: %s",
                       core->binlog->failed_call, core->binlog->failed_file, folder, strerror(-core->binlog->failed));
    else if (core->binlog && core->binlog->unopened.text[0])
        (void)snprintf(core->error, sizeof core->error, "cannot open %s/%s: %s", folder, core->binlog->unopened.text,
                       bs_open_error(error));
    else if (error == BS_NOT_REGULAR || error == BS_FOREIGN_HARD_LINK)
        (void)snprintf(core->error, sizeof core->error, "cannot lock %s/lock: %s", folder, bs_open_error(error));
    else if (error == BS_UNTRUSTED_LINK)
        (void)snprintf(core->error, sizeof core->error,
                       "cannot use binlog folder %s: a symbolic link on the way to it belongs to another user; put the"
                       " folder itself there, or make the link as root",
                       folder);
    else
        (void)snprintf(core->error, sizeof core->error, "cannot use binlog folder %s: %s", folder, strerror(-error));
    return error;
}

/* Jobs in the folder of another shard would never be found. */
static bool misplaced(bs_core *core)
{
    const bs_queue *queue = &core->server.queue;
    for (const bs_tube *tube = queue->tubes.first; tube && queue->workers > 1; tube = tube->next) {
        uint32_t shard = bs_shard_of(tube->name, tube->name_length, queue->workers, queue->colocate);
        if (shard == queue->shard)
            continue;
        (void)snprintf(core->error, sizeof core->error,
                       "binlog folder %.100s has jobs of tube %.80s, which belong to shard %u", core->config.binlog_dir,
                       tube->name, shard);
        return true;
    }
    return false;
}

static int open_folder(bs_core *core)
{
    bs_server *server = &core->server;
    int error = 0;
    if (core->binlog)
        return 0;
    core->binlog = bs_binlog_new(&core->config, &server->queue.jobs, server->queue.counters, server->queue.shared,
                                 &server->events, core->wake_fd, &error);
    if (!core->binlog)
        return error;
    core->binlog->ended_keys = &server->queue.ended_keys;
    core->binlog->replica = core->replica.shared ? &core->replica : NULL;
    server->queue.bodies = core->config.body_memory ? &core->binlog->bodies : NULL;
    core->recovery = bs_recovery_new(core->binlog, &server->queue);
    return core->recovery ? 0 : -ENOMEM;
}

int bs_core_follow(bs_core *core, uint64_t file, uint64_t end, bs_now now)
{
    const bool has_ended = core->binlog && !core->recovery;
    int error = has_ended || file > UINT32_MAX ? -EINVAL : open_folder(core);
    if (!error)
        error = bs_recovery_follow(core->recovery, (uint32_t)file, end, now);
    return error ? failed_to_recover(core, error) : 0;
}

static int read_folder(bs_core *core, bs_now now)
{
    int error = open_folder(core);
    if (!error)
        error = bs_binlog_lock(core->binlog);
    if (error)
        return error;
    error = bs_recovery_end(core->recovery, now);
    bs_recovery_free(core->recovery);
    core->recovery = NULL;
    return error;
}

int bs_core_read(bs_core *core, bs_now now)
{
    int error = core->config.binlog_dir ? read_folder(core, now) : 0;
    return error ? failed_to_recover(core, error) : 0;
}

int bs_core_recover(bs_core *core, bs_now now)
{
    if (!core->config.binlog_dir)
        return 0;
    int error = read_folder(core, now);
    if (!error && misplaced(core))
        return BS_ERR_FOLDER;
    if (!error)
        error = bs_binlog_start(core->binlog, now);
    if (error)
        return failed_to_recover(core, error);
    core->server.queue.binlog = core->binlog;
    if (core->server.queue.former)
        core->binlog->kept_by = bs_session_slot(core->server.queue.former);
    core->server.queue.counters->kept_bytes = core->server.queue.counters->kept_tubes = 0;
    error = bs_core_commit(core, now);
    /* Nobody may learn of a job that was recovered before it is stored (P2). */
    return error || !core->replica.shared ? error : bs_round_poll(core, true, now);
}

uint32_t bs_core_damaged(const bs_core *core, uint32_t index)
{
    const bs_binlog *binlog = core->binlog;
    for (uint32_t i = 0; binlog && i < binlog->file_count; i++)
        if (binlog->files[i].damaged && index-- == 0)
            return binlog->files[i].number;
    return 0;
}

static int load_body(void *context, bs_job *job)
{
    return bs_body_load(context, job);
}

int bs_transfer_add(bs_transfer *transfer, const bs_core *from)
{
    return bs_transfer_add_source(transfer, &(bs_transfer_source){&from->server.queue.jobs, &from->server.queue.ended_keys,
                                                                      load_body, from->binlog});
}

void bs_core_free(bs_core *core)
{
    if (!core)
        return;
    bs_recovery_free(core->recovery);
    bs_binlog_free(core->binlog);
    for (uint32_t i = 0; i < core->server.queue.sessions.count; i++) {
        const bs_session *session = core->server.queue.sessions.slots[i];
        if (session) {
            bs_close(session->fd);
            bs_trace_free(session->trace);
        }
    }
    bs_queue_free(&core->server.queue);
    bs_heap_free(&core->server.timeouts);
    bs_links_free(core);
    bs_events_free(&core->server.events);
    bs_upcalls_free(&core->server.upcalls);
    bs_pending_claims_free(&core->server.pending_claims);
    bs_long_commands_free(&core->server);
    bs_remote_moves_free(&core->server);
    bs_barriers_free(&core->server.barriers);
    bs_latency_free(&core->server.latency);
    bs_close(core->replica.offer_fd);
    bs_close(core->replica.stored_fd);
    bs_close(core->timer_fd);
    bs_close(core->wake_fd);
    bs_close(core->epoll_fd);
    free((char *)core->config.binlog_dir);
    free((char *)core->config.colocate);
    free(core);
}

const char *bs_core_error(const bs_core *core)
{
    return core->error;
}

int bs_core_fd(const bs_core *core)
{
    return core->epoll_fd;
}

int bs_core_next_event(bs_core *core, bs_event *event)
{
    return bs_events_take(&core->server.events, event);
}

int bs_core_commit(bs_core *core, bs_now now)
{
    if (core->fatal || bs_round_poll(core, true, now) != 0)
        return BS_ERR_BINLOG;
    int error;
    do {
        bs_core_run_runnable(core, now);
        error = bs_round_commit(core, now, true);
    } while (!error && (bs_job_waits_answer(&core->server.queue, UINT32_MAX, now) > 0 || bs_moves_due(&core->server)));
    if (!error)
        bs_latency_end(&core->server.latency, now.mono);
    return error;
}

int bs_core_stop(bs_core *core)
{
    bs_now now = bs_now_read();
    if (core->fatal)
        return BS_ERR_BINLOG;
    if (bs_round_stop(core, now) != 0)
        return BS_ERR_BINLOG;
    bs_connections_discard_input(core);
    bs_binlog_free(core->binlog);
    core->binlog = NULL;
    core->server.queue.binlog = NULL;
    core->server.queue.bodies = NULL;
    return 0;
}

/* --- sessions without a socket ---------------------------------------------------------------------------- */

uint64_t bs_core_open(bs_core *core, bs_now now)
{
    bs_session *session = bs_refs_open_session(&core->server.queue, false);
    if (!session)
        return 0;
    bs_timeouts_begin(&core->server, session, now);
    if (bs_trace_enabled(&core->server)) {
        bs_trace_begin(&core->server, session, "", now);
        bs_trace_accepted(&core->server, session);
    }
    return session->id;
}

/* Returns the session of a call that gives it input, NULL if the session takes none any more. */
static bs_session *find_open(bs_core *core, uint64_t id, bs_now now)
{
    bs_session *session = bs_core_begin_call(core, id, now);
    return session && !session->closing && !session->broken ? session : NULL;
}

int bs_core_feed(bs_core *core, uint64_t id, const char *bytes, size_t length, bs_now now)
{
    bs_session *session = find_open(core, id, now);
    if (!session)
        return -ENOENT;
    bs_stream_feed(&core->server, session, bytes, length, now);
    bs_core_resume_sessions(core, now);
    return 0;
}

int bs_core_finish(bs_core *core, uint64_t id, bs_now now)
{
    bs_session *session = find_open(core, id, now);
    if (!session)
        return -ENOENT;
    bs_stream_finish(&core->server, session, true, now);
    bs_core_run_runnable(core, now);
    return 0;
}

int64_t bs_core_output(bs_core *core, uint64_t id, char *buffer, size_t capacity)
{
    bs_session *session = bs_core_find(core, id);
    if (!session)
        return -ENOENT;
    if (core->fatal)
        return 0; /* L3 */
    size_t length = session->may_leave < capacity ? session->may_leave : capacity;
    if (length > 0) {
        bool was_blocked = bs_stream_blocked(&core->server, session);
        memcpy(buffer, bs_bytes_data(&session->out), length);
        bs_session_sent(session, length);
        session->sent_at = core->server.timeouts_checked;
        if (was_blocked && !bs_stream_blocked(&core->server, session))
            bs_session_list_add(&core->server.runnable, session);
    }
    return (int64_t)length;
}

void bs_core_close(bs_core *core, uint64_t id, bs_now now)
{
    bs_session *session = bs_core_begin_call(core, id, now);
    if (!session)
        return;
    bs_core_end_session(core, session, now);
    bs_core_resume_sessions(core, now);
}

int64_t bs_core_tick(bs_core *core, bs_now now)
{
    bs_latency_begin(&core->server.latency, now.mono);
    int64_t next = bs_queue_tick(&core->server.queue, now);
    int64_t timeout_at = bs_timeouts_tick(core, now);
    bs_core_run_runnable(core, now);
    return next < timeout_at ? next : timeout_at;
}

int bs_core_answer(bs_core *core, uint64_t id, const char *bytes, size_t length, bs_now now)
{
    bs_session *session = bs_core_begin_call(core, id, now);
    if (!session || !session->parked)
        return 0;
    session->parked = session->finding_job = false;
    bs_reply_whole(&core->server, session, bytes, length, bs_binlog_hold(core->binlog));
    bs_latency_replied(&core->server.latency, session, session->verb, session->since);
    bs_session_list_add(&core->server.runnable, session);
    if (session->fd < 0)
        bs_core_run_runnable(core, now);
    bs_core_wake(core);
    return 0;
}

void bs_core_roles(const bs_core *core, uint64_t *producers, uint64_t *workers)
{
    *producers = core->server.barriers.producers;
    *workers = core->server.barriers.workers;
}
