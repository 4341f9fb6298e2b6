/* Proxies: sessions that stand here for sessions of other workers (remote_commands.h). */

#include "commands/command_stream.h"
#include "queue/tube_refs.h"
#include "runtime/connection.h"
#include "runtime/worker_links.h"

bs_session *bs_proxy_for(bs_core *core, uint32_t shard, uint64_t home)
{
    bs_proxies *proxies = &core->peers[shard].proxies;
    bs_proxy *entry = bs_proxies_find(proxies, home);
    if (entry)
        return bs_core_find(core, entry->proxy);
    entry = bs_proxies_add(proxies, home);
    bs_session *session = bs_refs_open_proxy(&core->server.queue);
    if (!session) {
        bs_outbox_must_add(&core->server.outboxes[shard], BS_FRAME_ENDED, home, NULL, 0);
        return NULL;
    }
    session->peer = (uint8_t)shard;
    session->home = home;
    entry->proxy = session->id;
    return session;
}

void bs_proxy_flush(bs_core *core, bs_session *session, bs_now now)
{
    bs_server *server = &core->server;
    bs_outbox *outbox = &server->outboxes[session->peer];
    if (session->may_leave > 0 && server->peers[session->peer] == BS_PEER_UP) {
        bool was_blocked = bs_stream_blocked(server, session);
        if (bs_outbox_add(outbox, BS_FRAME_OUTPUT, session->home, NULL, 0, bs_bytes_data(&session->out),
                          session->may_leave) != 0)
            session->broken = true;
        else
            bs_session_sent(session, session->may_leave);
        if (was_blocked && !bs_stream_blocked(server, session))
            bs_session_list_add(&server->runnable, session);
    }
    if (!session->broken)
        return;
    /* Without its replies the client cannot continue either. */
    if (server->peers[session->peer] != BS_PEER_DOWN)
        bs_outbox_must_add(outbox, BS_FRAME_ENDED, session->home, NULL, 0);
    bs_core_end_session(core, session, now);
}

uint64_t bs_core_proxy(bs_core *core, uint32_t peer, uint64_t home)
{
    const bs_session *session = bs_proxy_for(core, peer, home);
    return session ? session->id : 0;
}

void bs_proxy_close(bs_core *core, uint32_t shard, uint64_t home, bs_now now)
{
    bs_proxies *proxies = &core->peers[shard].proxies;
    bs_proxy *entry = bs_proxies_find(proxies, home);
    bs_session *session = entry ? bs_core_find(core, entry->proxy) : NULL;
    if (entry)
        bs_proxies_remove(proxies, entry);
    if (session)
        bs_core_end_session(core, session, now);
}
