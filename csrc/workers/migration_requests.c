#include "workers/migration_requests.h"

#include "base/bytes.h"

enum { REPLIES_IN_A_ROW = 32 };

void bs_migration_count_reply(bs_remote *remote, uint32_t shard)
{
    if (remote->remote_run_shard != shard)
        remote->remote_run = 0;
    remote->remote_run_shard = shard;
    remote->remote_run++;
}

void bs_migration_request_if_due(bs_server *server, bs_session *session)
{
    bs_remote *remote = session->remote;
    if (remote->remote_run < REPLIES_IN_A_ROW || session->fd < 0 || session->reserved.count > 0)
        return;
    bs_queued_upcall *queued =
        bs_upcalls_add(&server->upcalls, BS_UPCALL_MIGRATE, remote->remote_run_shard, session->id);
    for (uint32_t shard = 0; shard < server->queue.workers; shard++) {
        char one = (char)shard;
        if (bs_shard_set_has(&remote->holding_shards, shard) && bs_bytes_append(&queued->bytes, &one, 1) != 0) {
            bs_session_break(server, session);
            return;
        }
    }
    remote->moving = true;
    session->parked = true;
}

void bs_migration_refused(bs_session *session)
{
    bs_remote *remote = session->remote;
    /* At varying distances, because a client that alternates reserve and delete might hold a job at each attempt. */
    const uint32_t replies = 3 + remote->refused_migrations++ * 7 % 11;
    remote->moving = false;
    remote->remote_run = REPLIES_IN_A_ROW - replies;
}
