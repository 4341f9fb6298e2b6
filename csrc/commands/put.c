#include "commands/commands.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "queue/queue.h"
#include "queue/tube_policies.h"
#include "server/remote_state.h"
#include "server/replies.h"
#include "server/trace.h"
#include "workers/global_limits.h"
#include "workers/remote_commands.h"

enum { MS_PER_S = 1000, CRLF = 2 };

/* Counts a refused put and returns the reply. */
static const char *refuse_put(bs_server *server, bs_refused reason)
{
    static const char *const replies[BS_REFUSED_REASONS] = {
        [BS_REFUSED_JOB_TOO_BIG] = "JOB_TOO_BIG\r\n",
        [BS_REFUSED_BAD_FORMAT] = "BAD_FORMAT\r\n",
        [BS_REFUSED_EXPECTED_CRLF] = "EXPECTED_CRLF\r\n",
        [BS_REFUSED_DRAINING] = "DRAINING\r\n",
    };
    server->queue.counters->refused_puts[reason]++;
    return replies[reason] ? replies[reason] : "OUT_OF_MEMORY\r\n";
}

/* Refuses a put whose body is still to come. */
static void refuse_with_body(bs_server *server, bs_session *session, const bs_command *command, bs_refused reason)
{
    session->input = BS_INPUT_SKIP;
    session->remaining = (uint64_t)command->number + 2;
    session->skip_reply = refuse_put(server, reason);
}

/* Sets the delay and the TTR of a new job. For a tube of another worker, that worker sets the delay of the options. */
static void set_times(bs_server *server, const bs_session *session, bs_job *job, const bs_command *command)
{
    const bs_put_options *options = session->put_options;
    uint32_t delay = command->delay;
    if (options && options->has_delay)
        delay = job->tube->remote ? 0 : (uint32_t)(((uint64_t)options->delay_ms + MS_PER_S - 1) / MS_PER_S);
    job->delay = delay;
    job->ttr = command->ttr ? command->ttr : 1;
    if (job->tube->policy)
        bs_policy_set_times(&server->queue, job, delay, command->ttr);
    if (options && options->has_delay && job->delay == delay)
        job->at = (int64_t)options->delay_ms * BS_MILLISECOND;
}

/* Returns whether the next put continues a job of another worker. No limit refuses it. */
static bool is_moved(const bs_session *session)
{
    return session->put_options && session->put_options->moved;
}

/* Returns whether the next put makes a job with attributes. Those of a job of another shard are set there. */
static bool needs_attributes(const bs_session *session)
{
    const bs_put_options *options = session->put_options;
    const bs_tube *tube = session->use;
    const bool by_policy = tube->policy && tube->policy->unique_body && !is_moved(session);
    return (by_policy || (options && (options->expires || options->key))) && !tube->remote;
}

static void set_attributes(const bs_queue *queue, const bs_put_options *options, const bs_job *job)
{
    bs_job_attributes *attributes = bs_job_attributes_of(job);
    attributes->expires = options->expires;
    attributes->window = options->window;
    if (!options->key)
        return;
    bs_unique_key(attributes->key, job->tube->name, job->tube->name_length, BS_KEY_CHOSEN, options->key,
                  options->key_length);
    /* owner_of_key looks for it when the body is there. Among many keys the places are not in the cache. */
    bs_key_table_prefetch(&queue->key_holders, attributes->key);
    bs_key_table_prefetch(&queue->ended_keys.by_key, attributes->key);
}

/* Begins to collect the body, or refuses the put. */
static void begin_put(bs_server *server, bs_session *session, const bs_command *command)
{
    if (command->number > server->max_job_size && !is_moved(session)) {
        refuse_with_body(server, session, command, BS_REFUSED_JOB_TOO_BIG);
        return;
    }
    if (command->malformed) {
        bs_reply(server, session, refuse_put(server, BS_REFUSED_BAD_FORMAT), BS_HOLD_NONE);
        return;
    }
    if (!session->producer && !session->proxy) {
        server->queue.counters->producers++;
        session->producer = true;
    }
    bs_refused refusal = BS_REFUSED_REASONS;
    const bool moved = is_moved(session);
    if (!moved && !bs_limits_allow_job(server, command->number + 2))
        refusal = BS_REFUSED_MEMORY_LIMIT;
    else if (!moved && session->use->policy)
        refusal = bs_policy_refusal(session->use, command->number + 2);
    if (refusal != BS_REFUSED_REASONS) {
        refuse_with_body(server, session, command, refusal);
        return;
    }
    uint64_t id = session->put_id ? session->put_id
                                  : __atomic_add_fetch(&server->queue.shared->last_id, 1, __ATOMIC_RELAXED);
    const bool attributes = needs_attributes(session);
    bs_job *job = bs_queue_new_job(&server->queue, session->use, id, command->number + 2, attributes);
    if (!job) {
        refuse_with_body(server, session, command, BS_REFUSED_OUT_OF_MEMORY);
        return;
    }
    job->pri = command->pri;
    set_times(server, session, job, command);
    if (attributes && session->put_options)
        set_attributes(&server->queue, session->put_options, job);
    session->incoming = job;
    session->remaining = job->body_size;
    session->input = BS_INPUT_BODY;
}

void bs_execute_put(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    (void)now;
    begin_put(server, session, command);
    if (session->put_options && session->input != BS_INPUT_BODY)
        bs_session_drop_put_options(session);
}

bool bs_execute_with(bs_session *session, const char *text, size_t length, bool moved)
{
    bs_put_options *options = moved ? bs_put_options_new_moved(text, length) : bs_put_options_new(text, length);
    if (!options)
        return false;
    free(session->put_options);
    session->put_options = options;
    return true;
}

static void set_moved(bs_job *job, const bs_moved_job *of)
{
    job->created_at = of->created_at;
    job->reserves = of->reserves;
    job->timeouts = of->timeouts;
    job->releases = of->releases;
    job->buries = of->buries;
    job->kicks = of->kicks;
}

/* The job whose key a put has. */
typedef struct {
    uint64_t id; /* 0: none */
    bs_hold hold;
} key_owner;

/* Returns the job that has this key, or had it and has ended within its window. */
static key_owner owner_of_key(bs_queue *queue, const uint8_t key[BS_KEY_BYTES], bs_now now)
{
    const bs_job *holder = bs_queue_key_holder(queue, key, now);
    if (holder)
        return (key_owner){holder->id, bs_binlog_hold_job(queue->binlog, holder)};
    const bs_ended_key *ended = bs_ended_find(&queue->ended_keys, key);
    if (ended && !bs_ended_is_over(ended->until, now.wall))
        return (key_owner){ended->job, bs_binlog_hold(queue->binlog)};
    return (key_owner){0, BS_HOLD_NONE};
}

/* Inserts the job, or returns the reply that refuses it. If its key has an owner, *owner is that, and nothing is
 * inserted. */
static const char *accept_job(bs_server *server, bs_session *session, bs_job *job, key_owner *owner, bs_now now)
{
    if (memcmp(bs_job_body(job) + job->body_size - 2, "\r\n", 2) != 0)
        return refuse_put(server, BS_REFUSED_EXPECTED_CRLF);
    if (!is_moved(session) && __atomic_load_n(&server->queue.shared->draining, __ATOMIC_RELAXED))
        return refuse_put(server, BS_REFUSED_DRAINING);
    if (!is_moved(session) && server->log_overdue && !job->tube->remote)
        return refuse_put(server, BS_REFUSED_LOG_OVERDUE);
    if (job->tube->policy && job->tube->policy->unique_body && job->has_attributes && !bs_job_has_key(job))
        bs_unique_key(bs_job_attributes_of(job)->key, job->tube->name, job->tube->name_length, BS_KEY_OF_BODY,
                      bs_job_body(job), job->body_size - CRLF);
    if (bs_job_has_key(job))
        *owner = owner_of_key(&server->queue, bs_job_attributes_of(job)->key, now);
    if (owner->id)
        return NULL;
    job->created_at = now.wall;
    if (is_moved(session))
        set_moved(job, &session->put_options->of);
    int error = job->tube->remote ? bs_remote_put(server, session, job) : bs_queue_insert(&server->queue, job, now);
    return error == 0 ? NULL
                      : refuse_put(server, error == -ENOSPC ? BS_REFUSED_BINLOG_FULL : BS_REFUSED_OUT_OF_MEMORY);
}

void bs_execute_body(bs_server *server, bs_session *session, bs_now now)
{
    bs_job *job = session->incoming;
    uint64_t id = job->id;
    bool remote = job->tube->remote;
    const uint32_t outstanding = bs_remote_outstanding(session);
    session->incoming = NULL;
    session->input = BS_INPUT_LINE;
    if (session->trace)
        bs_trace_body(server, session, id, job->body_size - 2);
    key_owner owner = {0, BS_HOLD_NONE};
    const char *refusal = accept_job(server, session, job, &owner, now);
    if (refusal) {
        bs_queue_drop_job(&server->queue, job);
        bs_remote_reply_in_order(server, session, refusal);
    } else if (owner.id) {
        bs_queue_drop_job(&server->queue, job);
        server->queue.counters->policy_actions[BS_POLICY_DUPLICATE]++;
        bs_reply_number(server, session, "INSERTED", owner.id, owner.hold);
    } else if (!remote) {
        const bs_binlog *binlog = server->queue.binlog;
        bs_reply_number(server, session, "INSERTED", id,
                        is_moved(session) ? bs_binlog_hold_until_sync(binlog) : bs_binlog_hold(binlog));
    }
    if (session->put_options)
        bs_session_drop_put_options(session);
    if (session->trace)
        bs_trace_executed(server, session, true);
    bs_command_done(server, session, outstanding);
}

void bs_count_bad_line(bs_server *server, bs_session *session, const char *line, size_t length)
{
    if (length < 4 || memcmp(line, "put ", 4) != 0)
        return;
    (void)refuse_put(server, BS_REFUSED_BAD_FORMAT);
    bs_session_drop_put_options(session);
}
