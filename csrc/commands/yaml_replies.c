#include "commands/commands.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "queue/tube_refs.h"
#include "server/replies.h"

enum { YAML_BYTES = 1024 };

static void reply_yaml(bs_server *server, bs_session *session, const char *text, int length)
{
    if (length < 0 || length >= YAML_BYTES) {
        bs_session_break(server, session); /* impossible: every field is bounded */
        return;
    }
    bs_reply_data(server, session, text, (size_t)length, bs_binlog_hold(server->queue.binlog));
}

void bs_reply_stats_job(bs_server *server, bs_session *session, const bs_job *job, bs_now now)
{
    char text[YAML_BYTES];
    int64_t left = job->state == BS_RESERVED || job->state == BS_DELAYED ? job->at - now.mono : 0;
    int64_t age = now.wall > job->created_at ? now.wall - job->created_at : 0;
    int length = snprintf(
        text, sizeof text,
        "---\nid: %" PRIu64 "\ntube: \"%s\"\nstate: %s\npri: %" PRIu32 "\nage: %" PRId64 "\ndelay: %" PRIu32
        "\nttr: %" PRIu32 "\ntime-left: %" PRId64 "\nfile: %" PRIu32 "\nreserves: %" PRIu32 "\ntimeouts: %" PRIu32
        "\nreleases: %" PRIu32 "\nburies: %" PRIu32 "\nkicks: %" PRIu32 "\n",
        job->id, job->tube->name, bs_state_names[job->state], job->pri, age / BS_SECOND, job->delay, job->ttr,
        left / BS_SECOND, job->file, job->reserves, job->timeouts, job->releases, job->buries, job->kicks);
    reply_yaml(server, session, text, length);
}

void bs_reply_stats_tube(bs_server *server, bs_session *session, const bs_tube *tube, bs_now now)
{
    char text[YAML_BYTES];
    uint64_t unrouted = bs_refs_unrouted(&server->queue, tube);
    int length = snprintf(
        text, sizeof text,
        "---\nname: \"%s\"\ncurrent-jobs-urgent: %" PRIu64 "\ncurrent-jobs-ready: %" PRIu32
        "\ncurrent-jobs-reserved: %" PRIu64 "\ncurrent-jobs-delayed: %" PRIu32 "\ncurrent-jobs-buried: %" PRIu32
        "\ntotal-jobs: %" PRIu64 "\ncurrent-using: %" PRIu64 "\ncurrent-watching: %" PRIu64
        "\ncurrent-waiting: %" PRIu32 "\ncmd-delete: %" PRIu64 "\ncmd-pause-tube: %" PRIu64 "\npause: %" PRId64
        "\npause-time-left: %" PRId64 "\n",
        tube->name, tube->urgent, bs_ready_count(&tube->ready), tube->reserved, tube->delayed.count,
        tube->buried.count, tube->total_jobs, tube->users + unrouted, tube->watchers + unrouted,
        tube->waiters, tube->deletes, tube->pauses,
        tube->pause_ns / BS_SECOND, bs_tube_pause_left(tube, now.mono) / BS_SECOND);
    reply_yaml(server, session, text, length);
}

static int add_name(bs_bytes *text, const bs_tube *tube)
{
    if (bs_bytes_append(text, "- ", 2) != 0 || bs_bytes_append(text, tube->name, tube->name_length) != 0)
        return -1;
    return bs_bytes_append(text, "\n", 1);
}

void bs_reply_list_tubes(bs_server *server, bs_session *session)
{
    bs_bytes text = {0};
    int error = bs_bytes_append(&text, "---\n", 4);
    for (const bs_tube *tube = server->queue.tubes.first; tube && !error; tube = tube->next)
        error = add_name(&text, tube);
    bs_reply_text(server, session, &text, error);
}

void bs_reply_list_watched(bs_server *server, bs_session *session)
{
    bs_bytes text = {0};
    int error = bs_bytes_append(&text, "---\n", 4);
    for (uint32_t i = 0; i < session->watch_count && !error; i++)
        error = add_name(&text, session->watches[i].tube);
    bs_reply_text(server, session, &text, error);
}
