#include "commands/proxy_commands.h"

#include <stdlib.h>
#include <string.h>

#include "commands/commands.h"
#include "queue/tube_refs.h"
#include "server/replies.h"
#include "workers/remote_commands.h"

static bool for_tube(bs_server *server, bs_session *session, const char *line, size_t length, bs_now now)
{
    const char *end = line + length;
    const char *id_at = memchr(line, ' ', length);
    const char *command = id_at ? memchr(id_at + 1, ' ', (size_t)(end - id_at - 1)) : NULL;
    if (!command || bs_refs_use(&server->queue, session, line, (size_t)(id_at - line)) != 0) {
        bs_session_break(server, session); /* no memory, or an invalid line */
        return true;
    }
    session->put_id = strtoull(id_at + 1, NULL, 10);
    bool done = bs_execute(server, session, command + 1, (size_t)(end - command - 1), now);
    session->put_id = 0;
    bs_refs_use_none(&server->queue, session);
    return done;
}

static void answer_query(bs_server *server, bs_session *session, const char *text, size_t length)
{
    if (length > 1 && text[0] == '+')
        bs_reply_number(server, session, "+", bs_tubes_find(&server->queue.tubes, text + 1, length - 1) != NULL,
                        BS_HOLD_NONE);
    else
        bs_reply_number(server, session, "#", session->reserved.count, BS_HOLD_NONE);
}

bool bs_proxy_execute(bs_server *server, bs_session *session, const char *line, size_t length, bs_now now)
{
    switch (line[0]) {
    case BS_PROXY_TUBE:
        return for_tube(server, session, line + 1, length - 1, now);
    case BS_PROXY_WATCH:
        if (length > 2 && line[1] == '-')
            (void)bs_refs_ignore(&server->queue, session, line + 2, length - 2);
        else if (length <= 2 || bs_refs_watch(&server->queue, session, line + 2, length - 2) != 0)
            bs_session_break(server, session);
        return true;
    case BS_PROXY_QUERY:
        answer_query(server, session, line + 1, length - 1);
        return true;
    default:
        bs_reply_bytes(server, session, line + 1, length - 1, BS_HOLD_NONE);
        bs_reply_bytes(server, session, "\r\n", 2, BS_HOLD_NONE);
        return true;
    }
}
