#include "runtime/overdue_log.h"

int64_t bs_overdue_log_next(const bs_core *core)
{
    const bs_binlog *binlog = core->binlog;
    const int64_t timeout = core->server.limits.replicate_timeout_ns;
    if (!binlog || !binlog->replica || !binlog->on_disk || timeout == 0)
        return INT64_MAX;
    return (core->closed_at ? core->closed_at : binlog->offered_at) + timeout;
}

static void close_held(bs_server *server)
{
    for (bs_session *session = server->held.first; session; session = session->links[BS_LIST_HELD].next) {
        if (session->from_mover || session->broken)
            continue;
        server->queue.counters->timed_out_connections += session->fd >= 0 || session->proxy;
        bs_session_break(server, session);
    }
}

void bs_overdue_log_tick(bs_core *core, bs_now now)
{
    const int64_t next = bs_overdue_log_next(core);
    if (next == INT64_MAX)
        core->closed_at = 0;
    else if (next <= now.mono) {
        close_held(&core->server);
        core->closed_at = now.mono;
    }
    core->server.log_overdue = core->closed_at != 0;
}
