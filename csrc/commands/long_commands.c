#include "commands/long_commands.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "queue/queue.h"
#include "queue/tube_refs.h"
#include "server/replies.h"

enum { DELETES_PER_STEP = 1000 };

struct bs_long_command {
    bs_long_command *next;
    uint64_t session;
    bs_command command; /* its name is `name` */
    bs_tube *tube;      /* a truncate that has begun: pinned */
    uint64_t deleted;
    char name[BS_TUBE_NAME_MAX];
};

static void add(bs_server *server, bs_long_command *command)
{
    command->next = NULL;
    *(server->last_long_command ? &server->last_long_command->next : &server->first_long_command) = command;
    server->last_long_command = command;
}

static bs_long_command *take_first(bs_server *server)
{
    bs_long_command *first = server->first_long_command;
    server->first_long_command = first->next;
    if (!first->next)
        server->last_long_command = NULL;
    return first;
}

bool bs_long_command_begin(bs_server *server, bs_session *session, const bs_command *command)
{
    bs_long_command *added = calloc(1, sizeof *added);
    if (!added)
        return false;
    added->session = session->id;
    added->command = *command;
    added->command.name = memcpy(added->name, command->name, command->name_length);
    add(server, added);
    session->parked = true;
    return true;
}

/* 0, -EAGAIN if another truncate of this tube is running, -ENOENT, -ENOSPC or -ENOMEM. */
static int begin_truncate(bs_server *server, bs_long_command *command)
{
    bs_tube *tube = bs_tubes_find(&server->queue.tubes, command->name, command->command.name_length);
    if (!tube)
        return -ENOENT;
    const int error = tube->truncated ? -EAGAIN : bs_queue_truncate_begin(&server->queue, tube);
    if (error)
        return error;
    bs_refs_pin(&server->queue, tube);
    command->tube = tube;
    return 0;
}

static void reply_truncated(bs_server *server, bs_session *session, const bs_long_command *command, int error)
{
    const bs_hold hold = bs_binlog_hold(server->queue.binlog);
    if (error == -ENOMEM)
        bs_reply(server, session, "OUT_OF_MEMORY\r\n", hold);
    else if (error == -ENOSPC)
        bs_reply(server, session, "INTERNAL_ERROR\r\n", hold);
    else
        bs_reply_number(server, session, "TRUNCATED", command->deleted, hold);
}

/* Returns true when the truncate has ended and its session, if that still exists, has the reply. */
static bool step_truncate(bs_server *server, bs_session *session, bs_long_command *command, bs_now now)
{
    const int error = command->tube ? 0 : begin_truncate(server, command);
    if (error == -EAGAIN)
        return false;
    if (!error) {
        bs_tube *tube = command->tube;
        command->deleted += bs_queue_truncate_step(&server->queue, tube, DELETES_PER_STEP, now);
        if (tube->truncated)
            return false;
        bs_refs_unpin(&server->queue, tube);
    }
    if (session)
        reply_truncated(server, session, command, error);
    return true;
}

static bool step(bs_server *server, bs_session *session, bs_long_command *command, bs_now now)
{
    if (command->command.verb == BS_VERB_TRUNCATE)
        return step_truncate(server, session, command, now);
    if (session)
        bs_reply_list_jobs(server, session, &command->command, now);
    return true;
}

void bs_long_commands_run(bs_server *server, bs_now now)
{
    if (!server->first_long_command)
        return;
    bs_long_command *command = take_first(server);
    bs_session *session = bs_sessions_find(&server->queue.sessions, command->session);
    if (!step(server, session, command, now)) {
        add(server, command);
        return;
    }
    free(command);
    if (!session)
        return;
    session->parked = false;
    if (!session->proxy)
        bs_latency_replied(&server->latency, session, session->verb, session->since);
    bs_session_list_add(&server->runnable, session);
}

void bs_long_commands_run_unconnected(bs_server *server, bs_now now)
{
    while (server->first_long_command) {
        const bs_session *session = bs_sessions_find(&server->queue.sessions, server->first_long_command->session);
        if (!session || session->proxy || session->fd >= 0)
            return;
        bs_long_commands_run(server, now);
    }
}

void bs_long_commands_free(bs_server *server)
{
    while (server->first_long_command)
        free(take_first(server));
}
