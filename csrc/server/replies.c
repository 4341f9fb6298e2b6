#include "server/replies.h"

#include <string.h>

#include "base/number.h"
#include "server/slow_log.h"
#include "server/trace.h"

enum { HEADER_BYTES = 64 };

void bs_reply_bytes(bs_server *server, bs_session *session, const char *bytes, size_t length, bs_hold hold)
{
    bs_session_reply(session, bytes, length, hold);
    if (session->may_leave > 0 || session->broken)
        bs_session_list_add(&server->dirty, session);
    if (session->may_leave < bs_bytes_length(&session->out))
        bs_session_list_add(&server->held, session);
}

/* A session has a whole reply, which starts with this line. */
static inline __attribute__((always_inline)) void replied(bs_server *server, const bs_session *session,
                                                          const char *line, size_t length, uint64_t job)
{
    if (!session->trace)
        return;
    if (server->tracing.level >= BS_TRACE_COMMANDS)
        bs_trace_reply(server, session, line, length);
    bs_slow_replied(server, session, &session->trace->slow, job, BS_NO_SHARD);
}

void bs_reply_whole(bs_server *server, bs_session *session, const char *bytes, size_t length, bs_hold hold)
{
    bs_reply_bytes(server, session, bytes, length, hold);
    replied(server, session, bytes, length, 0);
}

void bs_reply(bs_server *server, bs_session *session, const char *text, bs_hold hold)
{
    bs_reply_whole(server, session, text, strlen(text), hold);
}

static char *write_argument(char *out, uint64_t number)
{
    *out++ = ' ';
    return bs_write_number(out, number);
}

void bs_reply_number(bs_server *server, bs_session *session, const char *word, uint64_t number, bs_hold hold)
{
    char line[HEADER_BYTES];
    char *end = bs_write_text(write_argument(bs_write_text(line, word), number), "\r\n");
    bs_reply_bytes(server, session, line, (size_t)(end - line), hold);
    replied(server, session, line, (size_t)(end - line), 0);
}

void bs_reply_job(bs_server *server, bs_session *session, const char *word, const bs_job *job)
{
    char line[HEADER_BYTES];
    char *end = write_argument(write_argument(bs_write_text(line, word), job->id), job->body_size - 2);
    end = bs_write_text(end, "\r\n");
    bs_hold hold = bs_binlog_hold_job(server->queue.binlog, job);
    bs_reply_bytes(server, session, line, (size_t)(end - line), hold);
    bs_reply_bytes(server, session, bs_job_body(job), job->body_size, hold);
    replied(server, session, line, (size_t)(end - line), job->id);
}

void bs_reply_batch(bs_server *server, bs_session *session, uint32_t count, const bs_bytes *jobs, uint64_t job,
                    bs_hold hold)
{
    char line[HEADER_BYTES];
    char *end = bs_write_text(write_argument(bs_write_text(line, "BATCH"), count), "\r\n");
    bs_reply_bytes(server, session, line, (size_t)(end - line), hold);
    bs_reply_bytes(server, session, bs_bytes_data(jobs), bs_bytes_length(jobs), hold);
    replied(server, session, line, (size_t)(end - line), job);
}

void bs_reply_data(bs_server *server, bs_session *session, const char *data, size_t length, bs_hold hold)
{
    char line[HEADER_BYTES];
    char *end = bs_write_text(write_argument(bs_write_text(line, "OK"), length), "\r\n");
    bs_reply_bytes(server, session, line, (size_t)(end - line), hold);
    bs_reply_bytes(server, session, data, length, hold);
    bs_reply_bytes(server, session, "\r\n", 2, hold);
    replied(server, session, line, (size_t)(end - line), 0);
}

void bs_reply_text(bs_server *server, bs_session *session, bs_bytes *text, int error)
{
    if (error)
        bs_reply(server, session, "OUT_OF_MEMORY\r\n", BS_HOLD_NONE);
    else
        bs_reply_data(server, session, bs_bytes_data(text), bs_bytes_length(text),
                      bs_binlog_hold(server->queue.binlog));
    bs_bytes_free(text);
}
