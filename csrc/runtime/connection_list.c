/* bs_core_session_at: describes sessions without changing them. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "runtime/core_state.h"

enum { WATCHED_MOST = 64, JOBS_MOST = 64 };

static int add_line(bs_bytes *text, const char *line, size_t length)
{
    int error = bs_bytes_append(text, line, length);
    return error ? error : bs_bytes_append(text, "\n", 1);
}

/* Appends the first watched tubes, an empty line, and the first reserved jobs. */
static int append_lists(const bs_session *session, bs_bytes *text)
{
    char number[24];
    int error = 0;
    for (uint32_t i = 0; i < session->watch_count && i < WATCHED_MOST && !error; i++)
        error = add_line(text, session->watches[i].tube->name, session->watches[i].tube->name_length);
    if (!error)
        error = bs_bytes_append(text, "\n", 1);
    for (uint32_t i = 0; i < session->reserved.count && i < JOBS_MOST && !error; i++) {
        const bs_job *job = session->reserved.slots[i].item;
        int digits = snprintf(number, sizeof number, "%" PRIu64, job->id);
        error = add_line(text, number, (size_t)digits);
    }
    return error;
}

int bs_core_session_at(bs_core *core, uint32_t slot, bs_session_info *facts)
{
    const bs_sessions *sessions = &core->server.queue.sessions;
    if (slot >= sessions->count)
        return -ENOENT;
    const bs_session *session = sessions->slots[slot];
    if (!session || (session->fd < 0 && !session->proxy))
        return 0;
    bs_bytes *text = &core->server.upcalls.taken.bytes;
    bs_bytes_free(text);
    if (append_lists(session, text) != 0)
        return -ENOMEM;
    *facts = (bs_session_info){
        .number = session->proxy ? session->home : session->id,
        .home = session->proxy ? session->peer : core->server.queue.shard,
        .fd = session->fd,
        .is_proxy = session->proxy,
        .waits = session->waiting || (session->parked && session->claiming),
        .until = session->reserve_until,
        .watching = session->watch_count,
        .holds = session->reserved.count,
        .producer = session->producer,
        .worker = session->worker,
        .unread = bs_bytes_length(&session->in),
        .unsent = bs_bytes_length(&session->out),
        .use = session->use->name,
        .lists = bs_bytes_data(text),
        .length = bs_bytes_length(text),
    };
    return 1;
}
