#include "server/slow_log.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ring.h"
#include "server/remote_state.h"

enum { SMALLEST = 4, MOST_RECORDS = 1024, LINES_PER_SECOND = 10 };

static bs_slow_record *at(const bs_slow *slow, uint32_t index)
{
    return &slow->ring[bs_ring_at(slow->head, index, slow->capacity)];
}

static void clear(bs_slow_record *record)
{
    free(record->tube);
    *record = (bs_slow_record){0};
}

void bs_slow_free(bs_slow *slow)
{
    for (uint32_t i = 0; i < slow->count; i++)
        clear(at(slow, i));
    for (int i = BS_HOLD_NONE; i <= BS_HOLD_WRITTEN; i++)
        clear(&slow->batches[i]);
    free(slow->ring);
    *slow = (bs_slow){0};
}

void bs_slow_begin(bs_slow *slow, const bs_session *session)
{
    bs_slow_free(slow);
    if (bs_remote_awaits_replies(session))
        slow->unrecorded = session->remote->outstanding;
    else if (session->parked || session->waiting)
        slow->unrecorded = 1;
}

const char *bs_command_tube(const bs_session *session, const bs_command *command, size_t *length)
{
    switch (command->verb) {
    case BS_VERB_PUT:
    case BS_VERB_KICK:
    case BS_VERB_PEEK_READY:
    case BS_VERB_PEEK_DELAYED:
    case BS_VERB_PEEK_BURIED:
        *length = session->use->name_length;
        return session->use->name;
    case BS_VERB_USE:
    case BS_VERB_WATCH:
    case BS_VERB_IGNORE:
    case BS_VERB_PAUSE_TUBE:
    case BS_VERB_STATS_TUBE:
    case BS_VERB_LIST_JOBS:
    case BS_VERB_TRUNCATE:
    case BS_VERB_MOVE:
        *length = command->name_length <= BS_TUBE_NAME_MAX ? command->name_length : BS_TUBE_NAME_MAX;
        return command->name;
    default:
        *length = 0;
        return "";
    }
}

bs_slow_record bs_slow_current(const bs_server *server, const bs_session *session)
{
    const bs_tracing *tracing = &server->tracing;
    const bs_command *command = tracing->command;
    const int64_t since = session->trace->slow.since;
    bs_slow_record record = {.at = since ? since : tracing->now, .verb = BS_VERBS, .count = 1};
    if (command) {
        size_t length;
        const char *tube = bs_command_tube(session, command, &length);
        record.verb = (uint8_t)command->verb;
        record.job = tracing->put ? tracing->put : command->id;
        record.tube = length ? strndup(tube, length) : NULL; /* without memory it is logged without a tube */
    }
    return record;
}

void bs_slow_unanswered(bs_server *server, bs_session *session)
{
    bs_slow *slow = &session->trace->slow;
    if (slow->unrecorded || slow->count == MOST_RECORDS) {
        slow->unrecorded++;
        return;
    }
    if (slow->count == slow->capacity)
        slow->ring = bs_ring_must_grow(slow->ring, &slow->head, &slow->capacity, SMALLEST, sizeof *slow->ring);
    bs_slow_record *record = at(slow, slow->count++);
    *record = bs_slow_current(server, session);
    const bool may_wait = record->verb == BS_VERB_RESERVE || record->verb == BS_VERB_RESERVE_WITH_TIMEOUT ||
                          record->verb == BS_VERB_RESERVE_BATCH || record->verb == BS_VERB_WAIT;
    record->waits = may_wait && (session->waiting || session->parked);
}

void bs_slow_pop(bs_server *server, const bs_session *session, bs_slow_record *batch, uint64_t job, uint32_t shard)
{
    bs_slow *slow = &session->trace->slow;
    if (!slow->count) {
        slow->unrecorded--;
        return;
    }
    bs_slow_record record = *at(slow, 0);
    slow->head++;
    slow->count--;
    if (batch->count++ > 0) {
        clear(&record);
        return;
    }
    if (job)
        record.job = job;
    if (record.waits)
        record.at = server->tracing.now;
    if (shard != BS_NO_SHARD) {
        record.cause = BS_SLOW_WORKER;
        record.shard = (uint8_t)shard;
    }
    *batch = record;
}

/* Appends a batch. The older of the two first commands describes the result. */
static void merge(bs_slow_record *first, bs_slow_record *second)
{
    if (!second->count)
        return;
    const uint32_t count = first->count + second->count;
    if (!first->count || second->at <= first->at) {
        clear(first);
        *first = *second;
        *second = (bs_slow_record){0};
    } else {
        clear(second);
    }
    first->count = count;
}

void bs_slow_sync_started(bs_slow *slow)
{
    merge(&slow->batches[BS_HOLD_SYNCING], &slow->batches[BS_HOLD_WRITTEN]);
}

void bs_slow_sync_ended(bs_slow *slow)
{
    if (slow->batches[BS_HOLD_SYNCING].cause == BS_SLOW_UNKNOWN)
        slow->batches[BS_HOLD_SYNCING].cause = BS_SLOW_SYNC;
    merge(&slow->batches[BS_HOLD_NONE], &slow->batches[BS_HOLD_SYNCING]);
}

static void log_slow(bs_server *server, const bs_session *session, const bs_slow_record *batch, int64_t duration)
{
    bs_tracing *tracing = &server->tracing;
    if (tracing->clock - tracing->second >= BS_SECOND) {
        bs_slow_tick(server, tracing->clock);
        tracing->second = tracing->clock;
        tracing->lines = 0;
    }
    if (tracing->lines == LINES_PER_SECOND) {
        tracing->skipped += batch->count;
        return;
    }
    tracing->lines++;
    bs_event *event = bs_events_warn(&server->events, BS_EVENT_SLOW);
    if (!event)
        return;
    event->connection = session->trace->connection;
    memcpy(event->address, session->trace->address, sizeof event->address);
    event->duration = duration;
    event->count = batch->count - 1;
    event->cause = batch->cause;
    event->shard = batch->shard;
    event->job = batch->job;
    if (batch->verb != BS_VERBS)
        bs_verb_word((bs_verb)batch->verb, event->word);
    if (batch->tube)
        strncpy(event->tube, batch->tube, sizeof event->tube - 1);
}

void bs_slow_log_batch(bs_server *server, const bs_session *session)
{
    bs_slow_record *batch = &session->trace->slow.batches[BS_HOLD_NONE];
    if (!batch->count)
        return;
    int64_t duration = server->tracing.clock - batch->at;
    if (server->tracing.slow_ns > 0 && duration >= server->tracing.slow_ns)
        log_slow(server, session, batch, duration);
    clear(batch);
}

int64_t bs_slow_next(const bs_server *server)
{
    return server->tracing.skipped ? server->tracing.second + BS_SECOND : INT64_MAX;
}

void bs_slow_tick(bs_server *server, int64_t now)
{
    if (now < bs_slow_next(server))
        return;
    bs_event *event = bs_events_warn(&server->events, BS_EVENT_SLOW_MORE);
    if (event)
        event->count = server->tracing.skipped;
    server->tracing.skipped = 0;
}
