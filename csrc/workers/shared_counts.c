#include "workers/shared_counts.h"

#include "queue/tube_refs.h"

void bs_census_send(bs_server *server, uint32_t shard)
{
    const bs_counters *counters = server->queue.counters;
    bs_outbox_add_census(&server->outboxes[shard], counters->total_connections, counters->producers, counters->workers,
                         server->barriers.moves);
}

static void send_census(bs_server *server)
{
    bs_barriers *barriers = &server->barriers;
    const bs_queue *queue = &server->queue;
    const uint32_t home = queue->default_tube->shard;
    for (uint32_t shard = 0; shard < queue->workers; shard++) {
        const bool news = barriers->moved || (queue->adopted_new && shard == home);
        if (news && shard != queue->shard && server->peers[shard] != BS_PEER_DOWN)
            bs_census_send(server, shard);
    }
    barriers->moved = false;
    server->queue.adopted_new = false;
}

void bs_counts_send(bs_server *server)
{
    bs_tube *tube;
    bool unneeded;
    while (bs_refs_take_changed(&server->queue, &tube, &unneeded)) {
        if (server->peers[tube->shard] != BS_PEER_DOWN)
            bs_outbox_add_count(&server->outboxes[tube->shard], tube->name, tube->name_length,
                                unneeded ? 0 : tube->users, unneeded ? 0 : tube->watchers, unneeded ? 0 : tube->holds,
                                tube->number);
        if (!unneeded)
            bs_refs_counts_sent(&server->queue, tube);
    }
    if (server->queue.adopted_new || server->barriers.moved)
        send_census(server);
}
