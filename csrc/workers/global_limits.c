#include "workers/global_limits.h"

#include "server/remote_state.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

bool bs_limits_allow_job(const bs_server *server, uint32_t body_size)
{
    if (!server->limits.memory)
        return true;
    const bs_shared *shared = server->queue.shared;
    uint64_t sum = bs_job_bytes(body_size);
    for (uint32_t i = 0; i < server->queue.workers; i++)
        sum += larger(shared->worker[i].job_bytes, shared->worker[i].kept_bytes);
    return sum <= server->limits.memory;
}

static bool may_have_one_more(const bs_server *server)
{
    const bs_shared *shared = server->queue.shared;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < server->queue.workers; i++)
        sum += larger(shared->worker[i].tubes, shared->worker[i].kept_tubes);
    return sum < server->limits.tubes;
}

bool bs_limits_allow_tube(const bs_server *server, const bs_session *session, const char *name, size_t length)
{
    if (!server->limits.tubes)
        return true;
    const bs_queue *queue = &server->queue;
    return (session->remote && session->remote->tube_exists == BS_TUBE_EXISTS) ||
           bs_tubes_find(&queue->tubes, name, length) || bs_tubes_find(&queue->remote_tubes, name, length) ||
           may_have_one_more(server);
}
