#include "workers/pending_claims.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "queue/job_state.h"
#include "server/remote_state.h"

static void add(bs_doubt_list *list, bs_doubt doubt)
{
    enum { SMALLEST = 16 };
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : SMALLEST;
        list->items = bs_must_realloc(list->items, list->capacity, sizeof *list->items);
    }
    list->items[list->count++] = doubt;
}

static void remove_at(bs_doubt_list *list, uint32_t index)
{
    list->count--;
    memmove(&list->items[index], &list->items[index + 1], (list->count - index) * sizeof *list->items);
}

/* --- claims ----------------------------------------------------------------------------------------- */

void bs_doubt_begin(bs_server *server, bs_session *session, const bs_job *job)
{
    enum { SECOND = 1000000000 };
    const int64_t now_mono = job->at - (int64_t)job->ttr * SECOND;
    bs_doubts *doubts = &server->doubts;
    session->route->doubted = job->tube;
    session->route->doubt = ++doubts->last;
    add(&doubts->claims, (bs_doubt){.number = doubts->last, .session = session->id, .at = now_mono + BS_DOUBT_LIMIT_NS});
    job->tube->doubts++;
}

static void go_on(bs_server *server, const bs_doubt *waiter)
{
    bs_session *session = bs_sessions_find(&server->queue.sessions, waiter->session);
    if (!session)
        return;
    if (waiter->upcall) {
        session->doubtful = false;
        uint32_t home = session->proxy ? session->peer : server->queue.shard;
        (void)bs_upcalls_add(&server->upcalls, BS_UPCALL_CLAIMS_DECIDED, home, session->id);
    } else if (session->stalled) {
        session->stalled = false;
        session->certain = true;
        bs_session_list_add(&server->runnable, session);
    }
}

bs_tube *bs_doubt_end(bs_server *server, bs_session *session)
{
    bs_doubts *doubts = &server->doubts;
    bs_tube *tube = session->route->doubted;
    tube->doubts--;
    session->route->doubted = NULL;
    for (uint32_t i = 0; i < doubts->claims.count; i++) {
        if (doubts->claims.items[i].number == session->route->doubt) {
            remove_at(&doubts->claims, i);
            break;
        }
    }
    const uint64_t oldest = doubts->claims.count ? doubts->claims.items[0].number : UINT64_MAX;
    while (doubts->waiters.count && doubts->waiters.items[0].number < oldest) {
        const bs_doubt waiter = doubts->waiters.items[0];
        remove_at(&doubts->waiters, 0);
        go_on(server, &waiter);
    }
    return tube;
}

int64_t bs_doubt_next(const bs_server *server)
{
    return server->doubts.claims.count ? server->doubts.claims.items[0].at : INT64_MAX;
}

bs_session *bs_doubt_due(const bs_server *server, bs_now now)
{
    if (bs_doubt_next(server) > now.mono)
        return NULL;
    return bs_sessions_find(&server->queue.sessions, server->doubts.claims.items[0].session);
}

/* --- those who wait --------------------------------------------------------------------------------- */

bool bs_doubt_watched(const bs_session *session)
{
    for (uint32_t i = 0; i < session->watch_count; i++)
        if (session->watches[i].tube->doubts)
            return true;
    return false;
}

static bool of_tube(const bs_server *server, const bs_command *command)
{
    const bs_tube *tube = bs_tubes_find(&server->queue.tubes, command->name, command->name_length);
    return tube && tube->doubts;
}

/* However often this has to wait, it ends: a job that is put back is the next to leave its tube. */
static bool of_job(const bs_server *server, const bs_command *command)
{
    const bs_job *job = bs_job_table_find(&server->queue.jobs, command->id);
    if (!job || job->state != BS_RESERVED || !job->tube->doubts)
        return false;
    const bs_session *holder = bs_job_holder(&server->queue, job);
    return holder->route && holder->route->doubted && holder->route->claimed == job->id;
}

static bool in_doubt(const bs_server *server, const bs_session *session, const bs_command *command, bool certain)
{
    switch (command->verb) {
    case BS_VERB_DELETE:
    case BS_VERB_RESERVE_JOB:
    case BS_VERB_STATS_JOB:
        return of_job(server, command);
    case BS_VERB_PEEK_READY:
        return !certain && session->use->doubts;
    case BS_VERB_STATS_TUBE:
        return !certain && of_tube(server, command);
    case BS_VERB_RESERVE:
    case BS_VERB_RESERVE_WITH_TIMEOUT:
        return !certain && bs_doubt_watched(session);
    default:
        return false;
    }
}

bool bs_doubt_command(bs_server *server, bs_session *session, const bs_command *command)
{
    const bool certain = session->certain;
    session->certain = false;
    if (server->doubts.claims.count == 0 || !in_doubt(server, session, command, certain))
        return false;
    session->stalled = true;
    add(&server->doubts.waiters, (bs_doubt){.number = server->doubts.last, .session = session->id});
    return true;
}

void bs_doubt_wait(bs_server *server, bs_session *session)
{
    session->doubtful = true;
    add(&server->doubts.waiters, (bs_doubt){.number = server->doubts.last, .session = session->id, .upcall = true});
}

void bs_doubts_free(bs_doubts *doubts)
{
    free(doubts->claims.items);
    free(doubts->waiters.items);
    *doubts = (bs_doubts){0};
}
