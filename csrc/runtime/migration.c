/* Migration: packs a session and its connection for another worker, and unpacks those of others. */

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "commands/commands.h"
#include "queue/tube_refs.h"
#include "runtime/connection.h"
#include "server/remote_state.h"
#include "server/trace.h"
#include "workers/barrier.h"
#include "workers/migration_requests.h"

enum { MIGRATION_BYTES_MAX = 48 * 1024 }; /* it travels in one message */
enum { OPTIONS_MARK = ' ' }; /* at the start of the line with the options of the next put; no tube name has it */

static int pack(const bs_session *session, bs_bytes *state)
{
    int error = bs_bytes_append(state, session->use->name, session->use->name_length);
    for (uint32_t i = 0; i < session->watch_count && !error; i++) {
        const bs_tube *tube = session->watches[i].tube;
        error = bs_bytes_append(state, "\n", 1) || bs_bytes_append(state, tube->name, tube->name_length);
    }
    const bs_put_options *options = session->put_options;
    if (options && !error)
        error = bs_bytes_append(state, (const char[]){'\n', OPTIONS_MARK}, 2) ||
                bs_bytes_append(state, options->text, options->length);
    return error || bs_bytes_append(state, "\n\n", 2) ||
                   bs_bytes_append(state, bs_bytes_data(&session->in), bs_bytes_length(&session->in))
               ? -ENOMEM
               : 0;
}

/* No command, reply or job may be under way. */
static bool can_move(const bs_session *session)
{
    return session->fd >= 0 && session->remote && session->remote->moving && session->input == BS_INPUT_LINE &&
           session->reserved.count == 0 && bs_bytes_length(&session->out) == 0 && !session->waiting &&
           !session->broken && !session->closing && !bs_remote_awaits_replies(session);
}

int bs_core_detach(bs_core *core, uint64_t id, uint32_t shard, bs_migration *migration, bs_now now)
{
    bs_session *session = bs_core_find(core, id);
    if (session && session->may_leave > 0 && !core->fatal && !bs_lease_ended(core->server.queue.shared))
        bs_connection_send(core, session, now); /* the reply that starts the migration has not left yet */
    session = bs_core_find(core, id);
    if (!session)
        return -ENOENT;
    bs_bytes *state = &core->server.upcalls.taken.bytes;
    bs_bytes_free(state);
    if (!can_move(session) || core->server.peers[shard] == BS_PEER_DOWN || pack(session, state) != 0 ||
        bs_bytes_length(state) > MIGRATION_BYTES_MAX ||
        epoll_ctl(core->epoll_fd, EPOLL_CTL_DEL, session->fd, NULL) != 0) {
        bs_core_cancel_migration(core, id);
        return -EBUSY;
    }
    *migration = (bs_migration){.fd = session->fd,
                            .producer = session->producer,
                            .worker = session->worker,
                            .eof = session->eof,
                            .shard = core->server.queue.shard,
                            .state = bs_bytes_data(state),
                            .length = bs_bytes_length(state)};
    bs_latency_begin(&core->server.latency, now.mono);
    if (session->trace) {
        migration->logged = session->trace->logged;
        migration->connection = session->trace->connection;
        migration->commands = session->trace->commands;
        migration->opened = session->trace->opened;
        bs_trace_free(session->trace);
        session->trace = NULL; /* the connection goes on */
    }
    session->fd = -1;
    session->moved = true;
    bs_barrier_migrated_out(&core->server, session, shard);
    bs_core_end_session(core, session, now);
    return 0;
}

void bs_core_cancel_migration(bs_core *core, uint64_t id)
{
    bs_session *session = bs_core_find(core, id);
    if (!session || !session->remote)
        return;
    bs_migration_refused(session);
    session->parked = false;
    bs_session_list_add(&core->server.runnable, session);
    core->round_due = true;
}

/* Takes one line; NULL at the empty one. */
static const char *next_line(const char **at, const char *end, size_t *length)
{
    const char *line = *at;
    const char *lf = memchr(line, '\n', (size_t)(end - line));
    *length = lf ? (size_t)(lf - line) : 0;
    *at = lf ? lf + 1 : end;
    return *length ? line : NULL;
}

static int unpack(bs_core *core, bs_session *session, const char **at, const char *end)
{
    bs_queue *queue = &core->server.queue;
    size_t length;
    const char *name = next_line(at, end, &length);
    int error = name ? bs_refs_use(queue, session, name, length) : -EINVAL;
    while (!error && (name = next_line(at, end, &length))) {
        if (name[0] != OPTIONS_MARK)
            error = bs_refs_watch(queue, session, name, length);
        else
            error = bs_execute_with(session, name + 1, length - 1, false) ? 0 : -ENOMEM;
    }
    return error || bs_bytes_append(&session->in, *at, (size_t)(end - *at)) != 0 ? -ENOMEM : 0;
}

static void continue_trace(bs_core *core, bs_session *session, const bs_migration *migration, bs_now now)
{
    bs_connection_trace(core, session, now);
    if (!session->trace)
        return;
    if (migration->connection) {
        session->trace->logged = migration->logged;
        session->trace->connection = migration->connection;
        session->trace->commands = migration->commands;
        session->trace->opened = migration->opened;
    }
    bs_trace_moved(&core->server, session, migration->shard);
}

int bs_core_attach(bs_core *core, const bs_migration *migration, bs_now now)
{
    bs_server *server = &core->server;
    const char *at = migration->state;
    const char *end = at + migration->length;
    bs_barrier_migrated_in(server, migration->shard);
    bs_session *session = bs_connection_open(core, migration->fd, true);
    if (!session)
        return -ENOMEM;
    if (bs_trace_enabled(server))
        continue_trace(core, session, migration, now);
    if (unpack(core, session, &at, end) != 0) {
        bs_core_end_session(core, session, now);
        return -ENOMEM;
    }
    session->producer = migration->producer;
    session->worker = migration->worker;
    server->queue.counters->producers += session->producer;
    server->queue.counters->workers += session->worker;
    session->eof = migration->eof;
    session->readable = true; /* an edge may be lost */
    bs_session_list_add(&server->runnable, session);
    core->round_due = true;
    return 0;
}
