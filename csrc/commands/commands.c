#include "commands/commands.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "commands/long_commands.h"
#include "commands/waiting.h"
#include "queue/queue.h"
#include "queue/tube_policies.h"
#include "queue/tube_refs.h"
#include "server/remote_state.h"
#include "server/replies.h"
#include "server/reserves.h"
#include "server/trace.h"
#include "workers/barrier.h"
#include "workers/claims.h"
#include "workers/global_limits.h"
#include "workers/remote_commands.h"
#include "workers/remote_moves.h"
#include "workers/reserve_requests.h"

#define BAD_FORMAT "BAD_FORMAT\r\n"
#define NOT_FOUND "NOT_FOUND\r\n"
#define OUT_OF_MEMORY "OUT_OF_MEMORY\r\n"
#define INTERNAL_ERROR "INTERNAL_ERROR\r\n"

/* The hold of replies that depend on everything written so far. */
static bs_hold written_hold(const bs_server *server)
{
    return bs_binlog_hold(server->queue.binlog);
}

static bs_job *find(bs_server *server, const bs_command *command)
{
    return bs_job_table_seek(&server->queue.jobs, command->id);
}

/* Replies `done`, NOT_FOUND, or `full` if the binlog has no space. */
static void reply_result(bs_server *server, bs_session *session, int result, const char *done, const char *full)
{
    bs_reply(server, session, result == 0 ? done : result == -ENOENT ? NOT_FOUND : full, written_hold(server));
}

void bs_command_done(bs_server *server, bs_session *session, uint32_t outstanding)
{
    if (session->proxy || session->waiting)
        return;
    if (session->parked)
        session->since = server->latency.round;
    else if (session->input == BS_INPUT_LINE && session->verb != BS_VERB_QUIT &&
             bs_remote_outstanding(session) == outstanding)
        bs_latency_replied(&server->latency, session, session->verb, BS_SINCE_NOW);
}

/* --- with ------------------------------------------------------------------------------------------------- */

static void do_with(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    (void)now;
    const bool done = bs_execute_with(session, command->name, command->name_length, false);
    bs_remote_reply_in_order(server, session, done ? "WITH\r\n" : OUT_OF_MEMORY);
}

/* --- reserve ---------------------------------------------------------------------------------------------- */

static void do_reserve(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    const bool timed = command->verb != BS_VERB_RESERVE;
    const int64_t until = timed ? now.mono + (int64_t)command->number * BS_SECOND : INT64_MAX;
    session->batch = (uint16_t)command->batch;
    if (bs_reserve_concerns_others(server, session, now))
        bs_reserve_begin(server, session, until);
    else
        bs_execute_reserve(server, session, until, bs_reserve_other_priority(server, session), now);
}

/* Replies INTERNAL_ERROR if the job's body cannot be read. */
static bool load_body(bs_server *server, bs_session *session, bs_job *job)
{
    if (bs_job_has_body(job) || bs_body_load(server->queue.binlog, job) == 0)
        return true;
    bs_reply(server, session, INTERNAL_ERROR, written_hold(server));
    return false;
}

static void do_reserve_job(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    bs_job *job = find(server, command);
    if (job && job->state != BS_RESERVED && !load_body(server, session, job))
        return;
    if (bs_queue_reserve_job(&server->queue, session, job, now) != 0) {
        bs_reply(server, session, NOT_FOUND, written_hold(server));
        return;
    }
    bs_queue_count_worker(&server->queue, session);
    bs_reply_job(server, session, "RESERVED", job);
}

/* --- jobs ------------------------------------------------------------------------------------------------- */

static void do_delete(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    int result = bs_queue_delete(&server->queue, session, find(server, command), now);
    reply_result(server, session, result, "DELETED\r\n", INTERNAL_ERROR);
}

static void do_release(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    bs_job *job = find(server, command);
    int result = bs_queue_release(&server->queue, session, job, command->pri, command->delay, now);
    reply_result(server, session, result, "RELEASED\r\n", OUT_OF_MEMORY);
}

static void do_bury(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    int result = bs_queue_bury(&server->queue, session, find(server, command), command->pri, now);
    reply_result(server, session, result, "BURIED\r\n", INTERNAL_ERROR);
}

static void do_touch(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    if (bs_queue_touch(&server->queue, session, find(server, command), now) == 0)
        bs_reply(server, session, "TOUCHED\r\n", BS_HOLD_NONE);
    else
        bs_reply(server, session, NOT_FOUND, written_hold(server));
}

static void do_kick(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    uint32_t kicked = bs_queue_kick(&server->queue, session->use, command->number, now);
    bs_reply_number(server, session, "KICKED", kicked, written_hold(server));
}

static void do_kick_job(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    int result = bs_queue_kick_job(&server->queue, find(server, command), now);
    reply_result(server, session, result, "KICKED\r\n", NOT_FOUND);
}

static void do_peek(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    const bs_tube *tube = session->use;
    (void)now;
    bs_job *job = command->verb == BS_VERB_PEEK           ? find(server, command)
                  : command->verb == BS_VERB_PEEK_READY   ? bs_ready_first(&tube->ready)
                  : command->verb == BS_VERB_PEEK_DELAYED ? bs_heap_first(&tube->delayed)
                                                          : bs_heap_first(&tube->buried);
    if (job && !load_body(server, session, job))
        return;
    if (job)
        bs_reply_job(server, session, "FOUND", job);
    else
        bs_reply(server, session, NOT_FOUND, written_hold(server));
}

/* --- tubes ------------------------------------------------------------------------------------------------ */

enum { USING_MAX = BS_TUBE_NAME_MAX + 16, WATCHING_MAX = 32 };

static const char *using_text(const bs_session *session, char text[USING_MAX])
{
    (void)snprintf(text, USING_MAX, "USING %s\r\n", session->use->name);
    return text;
}

/* Replies OUT_OF_MEMORY and returns true if the limit of tubes is reached. */
static bool refused_for_tube_limit(bs_server *server, bs_session *session, const bs_command *command)
{
    bool allowed = bs_limits_allow_tube(server, session, command->name, command->name_length);
    if (session->remote)
        session->remote->tube_exists = BS_TUBE_UNKNOWN;
    if (allowed)
        return false;
    server->queue.counters->refused_tubes++;
    bs_reply(server, session, OUT_OF_MEMORY, BS_HOLD_NONE);
    return true;
}

static void do_use(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    char text[USING_MAX];
    (void)now;
    if (refused_for_tube_limit(server, session, command))
        return;
    if (bs_refs_use(&server->queue, session, command->name, command->name_length) != 0)
        bs_reply(server, session, OUT_OF_MEMORY, BS_HOLD_NONE);
    else
        bs_remote_reply_after_count(server, session, session->use, using_text(session, text));
}

static void do_watch(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    (void)now;
    if (refused_for_tube_limit(server, session, command))
        return;
    uint32_t before = session->watch_count;
    if (bs_refs_watch(&server->queue, session, command->name, command->name_length) != 0) {
        bs_reply(server, session, OUT_OF_MEMORY, BS_HOLD_NONE);
        return;
    }
    if (session->watch_count == before || !session->watches[before].tube->remote) {
        bs_reply_number(server, session, "WATCHING", session->watch_count, BS_HOLD_NONE);
        return;
    }
    char text[WATCHING_MAX];
    bs_remote_watch(server, session, session->watches[before].tube, true);
    (void)snprintf(text, sizeof text, "WATCHING %u\r\n", session->watch_count);
    bs_remote_reply_after_count(server, session, session->watches[before].tube, text);
}

static void do_ignore(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    (void)now;
    const bs_tube *remote = bs_tubes_find(&server->queue.remote_tubes, command->name, command->name_length);
    if (remote && session->watch_count > 1 && bs_refs_watches(session, remote))
        bs_remote_watch(server, session, remote, false); /* first, because the tube may be freed */
    if (bs_refs_ignore(&server->queue, session, command->name, command->name_length) != 0)
        bs_reply(server, session, "NOT_IGNORED\r\n", BS_HOLD_NONE);
    else
        bs_reply_number(server, session, "WATCHING", session->watch_count, BS_HOLD_NONE);
}

static void do_pause_tube(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    const char *reply = "PAUSED\r\n";
    if (command->malformed)
        reply = BAD_FORMAT;
    else if (bs_queue_pause(&server->queue, command->name, command->name_length, command->delay, now) != 0)
        reply = NOT_FOUND;
    bs_reply(server, session, reply, BS_HOLD_NONE);
}

static void do_list(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    char text[USING_MAX];
    (void)now;
    if (command->verb == BS_VERB_LIST_TUBES)
        bs_reply_list_tubes(server, session);
    else if (command->verb == BS_VERB_LIST_TUBES_WATCHED)
        bs_reply_list_watched(server, session);
    else
        bs_reply(server, session, using_text(session, text), BS_HOLD_NONE);
}

static void do_move(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    bs_job *job = find(server, command);
    if (!bs_queue_may_end(&server->queue, session, job)) {
        bs_reply(server, session, NOT_FOUND, written_hold(server));
        return;
    }
    if (!load_body(server, session, job) || refused_for_tube_limit(server, session, command))
        return;
    bs_tube *tube = bs_refs_tube(&server->queue, command->name, command->name_length);
    bs_job_target to = {tube, command->pri, command->delay, BS_ENDED_MOVED, session->id};
    uint64_t id;
    if (tube && tube->policy && !tube->remote)
        to.delay = bs_policy_delay(&server->queue, tube->policy, to.delay);
    if (!tube) {
        bs_reply(server, session, OUT_OF_MEMORY, BS_HOLD_NONE);
    } else if (tube->remote) {
        bs_remote_move_begin(server, session, job, &to, now);
    } else {
        const int error = bs_queue_move(&server->queue, job, to, &id, now);
        if (error == BS_MOVE_WAITS)
            session->parked = true;
        else if (error)
            bs_reply(server, session, error < 0 ? OUT_OF_MEMORY : INTERNAL_ERROR, written_hold(server));
        else
            bs_reply_number(server, session, "MOVED", id, written_hold(server));
    }
}

/* --- statistics and the rest ------------------------------------------------------------------------------ */

static void do_stats(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    (void)command, (void)now;
    session->parked = true;
    bs_barrier_count_roles(server);
    bs_events_add(&server->events, BS_EVENT_STATS, session->id);
}

static void do_stats_job(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    const bs_job *job = find(server, command);
    if (job)
        bs_reply_stats_job(server, session, job, now);
    else
        bs_reply(server, session, NOT_FOUND, written_hold(server));
}

static void do_stats_tube(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    const bs_tube *tube = bs_tubes_find(&server->queue.tubes, command->name, command->name_length);
    if (tube)
        bs_reply_stats_tube(server, session, tube, now);
    else
        bs_reply(server, session, NOT_FOUND, written_hold(server));
}

/* The names of the extensions, for clients that use them only where they exist. */
static void do_features(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    static const char names[] = "---\n- list-jobs\n- truncate\n- wait\n- reserve-abort\n- reserve-batch\n- with\n- move\n";
    (void)command, (void)now;
    bs_reply_data(server, session, names, sizeof names - 1, BS_HOLD_NONE);
}

/* bs_stream_look_ahead has ended a wait that preceded this command. */
static void do_reserve_abort(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    (void)command, (void)now;
    bs_reply(server, session, "ABORTED\r\n", BS_HOLD_NONE);
}

static void do_long(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    (void)now;
    if (!bs_long_command_begin(server, session, command))
        bs_reply(server, session, OUT_OF_MEMORY, BS_HOLD_NONE);
}

static void do_quit(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    (void)command, (void)now;
    session->closing = true;
    bs_session_list_add(&server->dirty, session);
}

static void (*const handlers[BS_VERBS])(bs_server *, bs_session *, const bs_command *, bs_now) = {
    [BS_VERB_PUT] = bs_execute_put,
    [BS_VERB_PEEK] = do_peek,
    [BS_VERB_PEEK_READY] = do_peek,
    [BS_VERB_PEEK_DELAYED] = do_peek,
    [BS_VERB_PEEK_BURIED] = do_peek,
    [BS_VERB_RESERVE_WITH_TIMEOUT] = do_reserve,
    [BS_VERB_RESERVE_JOB] = do_reserve_job,
    [BS_VERB_RESERVE] = do_reserve,
    [BS_VERB_DELETE] = do_delete,
    [BS_VERB_RELEASE] = do_release,
    [BS_VERB_BURY] = do_bury,
    [BS_VERB_KICK] = do_kick,
    [BS_VERB_KICK_JOB] = do_kick_job,
    [BS_VERB_TOUCH] = do_touch,
    [BS_VERB_STATS_JOB] = do_stats_job,
    [BS_VERB_STATS_TUBE] = do_stats_tube,
    [BS_VERB_STATS] = do_stats,
    [BS_VERB_USE] = do_use,
    [BS_VERB_WATCH] = do_watch,
    [BS_VERB_IGNORE] = do_ignore,
    [BS_VERB_LIST_TUBES_WATCHED] = do_list,
    [BS_VERB_LIST_TUBE_USED] = do_list,
    [BS_VERB_LIST_TUBES] = do_list,
    [BS_VERB_QUIT] = do_quit,
    [BS_VERB_PAUSE_TUBE] = do_pause_tube,
    [BS_VERB_FEATURES] = do_features,
    [BS_VERB_LIST_JOBS] = do_long,
    [BS_VERB_TRUNCATE] = do_long,
    [BS_VERB_WAIT] = bs_execute_wait,
    [BS_VERB_RESERVE_BATCH] = do_reserve,
    [BS_VERB_RESERVE_ABORT] = do_reserve_abort,
    [BS_VERB_WITH] = do_with,
    [BS_VERB_MOVE] = do_move,
};

/* Returns whether an overdue log refuses the command (overdue_log.h). A put is refused after its body. */
static bool can_be_repeated(bs_verb verb)
{
    switch (verb) {
    case BS_VERB_KICK:
    case BS_VERB_KICK_JOB:
    case BS_VERB_TRUNCATE:
    case BS_VERB_MOVE:
        return true;
    default:
        return false;
    }
}

/* Inlined twice, because a call would cost sessions without a trace as much as the trace itself. */
static inline __attribute__((always_inline)) bool execute_parsed(bs_server *server, bs_session *session,
                                                                 bs_parsed parsed, const bs_command *command,
                                                                 const char *line, size_t length, bs_now now)
{
    bool alone = server->queue.workers == 1 || session->proxy;
    if (parsed != BS_PARSED) {
        if (!alone && !bs_remote_may_reply(session))
            return false;
        if (parsed == BS_BAD_FORMAT)
            bs_count_bad_line(server, session, line, length);
        bs_reply(server, session, parsed == BS_BAD_FORMAT ? BAD_FORMAT : "UNKNOWN_COMMAND\r\n", BS_HOLD_NONE);
        return true;
    }
    const uint32_t outstanding = bs_remote_outstanding(session);
    session->verb = (uint8_t)command->verb;
    bs_routing routed = alone || bs_command_is_local(server, session, command)
                           ? BS_ROUTE_LOCAL
                           : bs_remote_route(server, session, command, line, length);
    if (routed == BS_ROUTE_STALLED || (routed == BS_ROUTE_LOCAL && (bs_pending_claims_stall(server, session, command) ||
                                                                 (bs_barrier_concerns(command) &&
                                                                  bs_barrier_command(server, session, command)) ||
                                                                 (command->verb == BS_VERB_MOVE &&
                                                                  bs_remote_move_stalls(server, session, command)))))
        return false;
    if (command->verb < BS_VERBS_COUNTED && !session->proxy)
        server->queue.counters->cmd[command->verb]++;
    if (command->verb == BS_VERB_USE || command->verb == BS_VERB_WATCH || command->verb == BS_VERB_IGNORE)
        session->barrier_bytes = 0; /* later commands must observe its effect on other workers */
    if (routed == BS_ROUTE_LOCAL && __builtin_expect(server->log_overdue, 0) && can_be_repeated(command->verb))
        bs_reply(server, session, OUT_OF_MEMORY, BS_HOLD_NONE);
    else if (routed == BS_ROUTE_LOCAL)
        handlers[command->verb](server, session, command, now);
    bs_command_done(server, session, outstanding);
    return true;
}

bool bs_execute(bs_server *server, bs_session *session, const char *line, size_t length, bs_now now)
{
    bs_command command;
    bs_parsed parsed = bs_parse(line, length, &command);
    if (!session->trace)
        return execute_parsed(server, session, parsed, &command, line, length, now);
    bs_trace_command(server, session, parsed == BS_PARSED ? &command : NULL, line, length);
    bool done = execute_parsed(server, session, parsed, &command, line, length, now);
    bs_trace_executed(server, session, done);
    return done;
}
