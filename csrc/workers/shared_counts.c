#include "workers/shared_counts.h"

#include <string.h>

#include "queue/tube_refs.h"

void bs_census_send(bs_server *server, uint32_t shard)
{
    const bs_counters *counters = server->queue.counters;
    const bs_census census = {counters->total_connections, counters->producers, counters->workers,
                              server->barriers.moves};
    bs_outbox_must_add(&server->outboxes[shard], BS_FRAME_CENSUS, 0, &census, sizeof census);
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

static void send_count(bs_server *server, const bs_tube *tube, bs_peer_refs refs)
{
    char content[sizeof refs + BS_TUBE_NAME_MAX];
    memcpy(content, &refs, sizeof refs);
    memcpy(content + sizeof refs, tube->name, tube->name_length);
    bs_outbox_must_add(&server->outboxes[tube->shard], BS_FRAME_COUNT, tube->number, content,
                       sizeof refs + tube->name_length);
}

void bs_counts_send(bs_server *server)
{
    bs_tube *tube;
    bool unneeded;
    while (bs_refs_take_changed(&server->queue, &tube, &unneeded)) {
        const bs_peer_refs refs = {.users = tube->users, .watchers = tube->watchers, .holds = tube->holds};
        if (server->peers[tube->shard] != BS_PEER_DOWN)
            send_count(server, tube, unneeded ? (bs_peer_refs){0} : refs);
        if (!unneeded)
            bs_refs_counts_sent(&server->queue, tube);
    }
    if (server->queue.adopted_new || server->barriers.moved)
        send_census(server);
}
