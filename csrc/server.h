/* What every command needs at hand, and replies. Below the socket loop: no descriptors here. */
#ifndef BS_SERVER_H
#define BS_SERVER_H

#include "events.h"
#include "mails.h"
#include "queue.h"
#include "session.h"

typedef struct {
    bs_queue queue;
    bs_events events;
    bs_mails mails;
    uint8_t peers[BS_MAX_WORKERS]; /* BS_PEER_ of each */
    uint32_t max_job_size; /* bytes, without CR LF */
    bs_session_list dirty;
    bs_session_list held;
    bs_session_list runnable;
    bs_session_list again;
} bs_server;

/* Adds a reply; `text` ends with CR LF. */
void bs_reply(bs_server *server, bs_session *session, const char *text, bs_hold hold);

/* `word number` CR LF. */
void bs_reply_number(bs_server *server, bs_session *session, const char *word, uint64_t number, bs_hold hold);

/* `word id bytes` CR LF body: RESERVED or FOUND. */
void bs_reply_job(bs_server *server, bs_session *session, const char *word, const bs_job *job);

/* `OK length` CR LF data CR LF. */
void bs_reply_data(bs_server *server, bs_session *session, const char *data, size_t length, bs_hold hold);

/* Any bytes. */
void bs_reply_bytes(bs_server *server, bs_session *session, const char *bytes, size_t length, bs_hold hold);

/* Ends the connection at once: its replies can no longer be told, or not in order. */
void bs_break_off(bs_server *server, bs_session *session);

#endif
