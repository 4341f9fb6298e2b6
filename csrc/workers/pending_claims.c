#include "workers/pending_claims.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "queue/job_state.h"
#include "server/remote_state.h"

static void add(bs_pending_claim_list *list, bs_pending_claim item)
{
    enum { SMALLEST = 16 };
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : SMALLEST;
        list->items = bs_must_realloc(list->items, list->capacity, sizeof *list->items);
    }
    list->items[list->count++] = item;
}

static void remove_at(bs_pending_claim_list *list, uint32_t index)
{
    list->count--;
    memmove(&list->items[index], &list->items[index + 1], (list->count - index) * sizeof *list->items);
}

/* --- claims ----------------------------------------------------------------------------------------------- */

void bs_pending_claims_add(bs_server *server, bs_session *session, const bs_job *job)
{
    const int64_t now_mono = job->at - (int64_t)job->ttr * BS_SECOND;
    bs_pending_claims *pending = &server->pending_claims;
    session->remote->claimed_tube = job->tube;
    session->remote->claim_number = ++pending->last;
    add(&pending->claims,
        (bs_pending_claim){.number = pending->last, .session = session->id, .at = now_mono + BS_CLAIM_LIMIT_NS});
    job->tube->pending_claims++;
}

static void release(bs_server *server, const bs_pending_claim *waiter)
{
    bs_session *session = bs_sessions_find(&server->queue.sessions, waiter->session);
    if (!session)
        return;
    if (waiter->upcall) {
        session->awaits_claims = false;
        uint32_t home = session->proxy ? session->peer : server->queue.shard;
        (void)bs_upcalls_add(&server->upcalls, BS_UPCALL_CLAIMS_DECIDED, home, session->id);
    } else if (session->stalled) {
        session->stalled = false;
        session->claims_decided = true;
        bs_session_list_add(&server->runnable, session);
    }
}

bs_tube *bs_pending_claims_remove(bs_server *server, bs_session *session)
{
    bs_pending_claims *pending = &server->pending_claims;
    bs_tube *tube = session->remote->claimed_tube;
    tube->pending_claims--;
    session->remote->claimed_tube = NULL;
    for (uint32_t i = 0; i < pending->claims.count; i++) {
        if (pending->claims.items[i].number == session->remote->claim_number) {
            remove_at(&pending->claims, i);
            break;
        }
    }
    const uint64_t oldest = pending->claims.count ? pending->claims.items[0].number : UINT64_MAX;
    while (pending->waiters.count && pending->waiters.items[0].number < oldest) {
        const bs_pending_claim waiter = pending->waiters.items[0];
        remove_at(&pending->waiters, 0);
        release(server, &waiter);
    }
    return tube;
}

int64_t bs_pending_claims_next(const bs_server *server)
{
    return server->pending_claims.claims.count ? server->pending_claims.claims.items[0].at : INT64_MAX;
}

bs_session *bs_pending_claims_due(const bs_server *server, bs_now now)
{
    if (bs_pending_claims_next(server) > now.mono)
        return NULL;
    return bs_sessions_find(&server->queue.sessions, server->pending_claims.claims.items[0].session);
}

/* --- those who wait --------------------------------------------------------------------------------------- */

bool bs_pending_claims_watched(const bs_session *session)
{
    for (uint32_t i = 0; i < session->watch_count; i++)
        if (session->watches[i].tube->pending_claims)
            return true;
    return false;
}

static bool of_tube(const bs_server *server, const bs_command *command)
{
    const bs_tube *tube = bs_tubes_find(&server->queue.tubes, command->name, command->name_length);
    return tube && tube->pending_claims;
}

/* Repeated waits end, because a job that is put back is the next to leave its tube. */
static bool of_job(const bs_server *server, const bs_command *command)
{
    const bs_job *job = bs_job_table_find(&server->queue.jobs, command->id);
    if (!job || job->state != BS_RESERVED || !job->tube->pending_claims)
        return false;
    const bs_session *holder = bs_job_holder(&server->queue, job);
    return holder->remote && holder->remote->claimed_tube && holder->remote->claimed == job->id;
}

static bool is_undecided(const bs_server *server, const bs_session *session, const bs_command *command, bool decided)
{
    switch (command->verb) {
    case BS_VERB_DELETE:
    case BS_VERB_RESERVE_JOB:
    case BS_VERB_STATS_JOB:
        return of_job(server, command);
    case BS_VERB_PEEK_READY:
        return !decided && session->use->pending_claims;
    case BS_VERB_STATS_TUBE:
        return !decided && of_tube(server, command);
    case BS_VERB_RESERVE:
    case BS_VERB_RESERVE_WITH_TIMEOUT:
        return !decided && bs_pending_claims_watched(session);
    default:
        return false;
    }
}

static void add_waiter(bs_server *server, const bs_session *session, bool upcall)
{
    bs_pending_claims *pending = &server->pending_claims;
    add(&pending->waiters, (bs_pending_claim){.number = pending->last, .session = session->id, .upcall = upcall});
}

bool bs_pending_claims_stall(bs_server *server, bs_session *session, const bs_command *command)
{
    const bool decided = session->claims_decided;
    session->claims_decided = false;
    if (server->pending_claims.claims.count == 0 || !is_undecided(server, session, command, decided))
        return false;
    session->stalled = true;
    add_waiter(server, session, false);
    return true;
}

void bs_pending_claims_wait(bs_server *server, bs_session *session)
{
    session->awaits_claims = true;
    add_waiter(server, session, true);
}

void bs_pending_claims_free(bs_pending_claims *pending)
{
    free(pending->claims.items);
    free(pending->waiters.items);
    *pending = (bs_pending_claims){0};
}
