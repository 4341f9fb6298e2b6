/* Upcalls to Python, and the calls by which Python handles them. */

#include <inttypes.h>
#include <stdio.h>

#include "runtime/connection.h"
#include "server/remote_state.h"
#include "workers/barrier.h"
#include "workers/remote_commands.h"

int bs_core_next_upcall(bs_core *core, bs_upcall *upcall)
{
    /* A command at another worker must find the session that sends it counted. */
    bs_counts_send(&core->server);
    return bs_upcalls_take(&core->server.upcalls, upcall);
}

const char *bs_core_tubes(bs_core *core, size_t *length)
{
    bs_bytes *text = &core->server.upcalls.taken.bytes;
    char number[24];
    bs_bytes_free(text);
    for (const bs_tube *tube = core->server.queue.tubes.first; tube; tube = tube->next) {
        int digits = snprintf(number, sizeof number, "%" PRIu64 " ", tube->number);
        if (bs_bytes_append(text, number, (size_t)digits) != 0 ||
            bs_bytes_append(text, tube->name, tube->name_length) != 0 || bs_bytes_append(text, "\n", 1) != 0)
            return NULL;
    }
    *length = bs_bytes_length(text);
    return *length ? bs_bytes_data(text) : "";
}

void bs_core_relay_output(bs_core *core, uint64_t id, uint32_t shard, const char *bytes, size_t length, bs_now now)
{
    bs_session *session = bs_core_begin_call(core, id, now);
    if (!session || session->proxy)
        return;
    bs_relay_output(&core->server, session, shard, bytes, length);
    bs_core_resume_sessions(core, now);
}

void bs_core_expect(bs_core *core, uint64_t id, uint32_t shard)
{
    bs_session *session = bs_core_find(core, id);
    if (!session || !bs_remote_of(&core->server, session))
        return;
    session->finding_job = false;
    bs_remote_expect(session, shard);
}

int bs_core_holds(const bs_core *core, uint64_t id)
{
    const bs_session *session = bs_core_find(core, id);
    return session ? (int)session->reserved.count : 0;
}
