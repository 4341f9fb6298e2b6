#include "queue/session.h"

#include <assert.h>
#include <stdlib.h>

enum { SMALLEST = 16 };

const bs_heap_kind bs_session_kind = {offsetof(bs_session, place), offsetof(bs_session, id)};

void bs_session_reply(bs_session *session, const char *bytes, size_t length, bs_hold hold)
{
    size_t before = bs_bytes_length(&session->out);
    if (bs_bytes_append(&session->out, bytes, length) != 0) {
        session->broken = true;
        return;
    }
    if (session->after_sync < before || hold == BS_HOLD_WRITTEN)
        return;
    session->after_sync = before + length;
    if (session->may_leave == before && hold == BS_HOLD_NONE)
        session->may_leave = before + length;
}

void bs_session_drop_put_options(bs_session *session)
{
    free(session->put_options);
    session->put_options = NULL;
}

void bs_session_sent(bs_session *session, size_t length)
{
    assert(length <= session->may_leave);
    bs_bytes_take(&session->out, length);
    session->may_leave -= length;
    session->after_sync -= length;
}

static bool grow(bs_sessions *sessions)
{
    uint32_t capacity = sessions->capacity ? sessions->capacity * 2 : SMALLEST;
    bs_session **slots = realloc(sessions->slots, capacity * sizeof(bs_session *));
    if (!slots)
        return false;
    sessions->slots = slots;
    uint32_t *free_slots = realloc(sessions->free_slots, capacity * sizeof *free_slots);
    if (!free_slots)
        return false;
    sessions->free_slots = free_slots;
    sessions->capacity = capacity;
    return true;
}

bs_session *bs_sessions_open(bs_sessions *sessions)
{
    if (sessions->free_count == 0 && sessions->count == sessions->capacity && !grow(sessions))
        return NULL;
    bs_session *session = calloc(1, sizeof *session);
    if (!session)
        return NULL;
    uint32_t slot = sessions->free_count ? sessions->free_slots[--sessions->free_count] : sessions->count++;
    sessions->serial++;
    if (sessions->serial == 0)
        sessions->serial = 1;
    session->id = (uint64_t)sessions->serial << 32 | slot;
    session->fd = -1;
    session->place = session->timeout_place = BS_NO_PLACE;
    sessions->slots[slot] = session;
    return session;
}

bs_session *bs_sessions_find(const bs_sessions *sessions, uint64_t id)
{
    uint32_t slot = (uint32_t)id;
    bs_session *session = slot < sessions->count ? sessions->slots[slot] : NULL;
    return session && session->id == id ? session : NULL;
}

static void free_session(bs_session *session)
{
    free(session->watches);
    free(session->reserved_ids);
    bs_heap_free(&session->reserved);
    bs_bytes_free(&session->in);
    bs_bytes_free(&session->out);
    free(session->incoming);
    free(session->put_options);
    free(session->remote);
    free(session);
}

void bs_sessions_close(bs_sessions *sessions, bs_session *session)
{
    assert(session->lists == 0 && session->place == BS_NO_PLACE && session->timeout_place == BS_NO_PLACE &&
           !session->trace);
    uint32_t slot = bs_session_slot(session);
    sessions->slots[slot] = NULL;
    sessions->free_slots[sessions->free_count++] = slot;
    free_session(session);
}

void bs_sessions_free(bs_sessions *sessions)
{
    for (uint32_t i = 0; i < sessions->count; i++)
        if (sessions->slots[i])
            free_session(sessions->slots[i]);
    free(sessions->slots);
    free(sessions->free_slots);
    *sessions = (bs_sessions){0};
}

void bs_session_list_add(bs_session_list *list, bs_session *session)
{
    if (session->lists & (1U << list->which))
        return;
    session->lists = (uint8_t)(session->lists | 1U << list->which);
    bs_session_link *link = &session->links[list->which];
    link->previous = list->last;
    link->next = NULL;
    *(list->last ? &list->last->links[list->which].next : &list->first) = session;
    list->last = session;
}

void bs_session_list_remove(bs_session_list *list, bs_session *session)
{
    if (!(session->lists & (1U << list->which)))
        return;
    session->lists = (uint8_t)(session->lists & ~(1U << list->which));
    bs_session_link *link = &session->links[list->which];
    *(link->previous ? &link->previous->links[list->which].next : &list->first) = link->next;
    *(link->next ? &link->next->links[list->which].previous : &list->last) = link->previous;
}
