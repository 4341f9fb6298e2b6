/* Replies: bytes added to the output of a session. */
#ifndef BS_REPLIES_H
#define BS_REPLIES_H

#include "server/server_state.h"

/* `text` ends with CR LF. */
void bs_reply(bs_server *server, bs_session *session, const char *text, bs_hold hold);

/* `word number` CR LF. */
void bs_reply_number(bs_server *server, bs_session *session, const char *word, uint64_t number, bs_hold hold);

/* `word id bytes` CR LF body: RESERVED or FOUND. */
void bs_reply_job(bs_server *server, bs_session *session, const char *word, const bs_job *job);

/* `BATCH count` CR LF and the jobs, of which `job` is the first. */
void bs_reply_batch(bs_server *server, bs_session *session, uint32_t count, const bs_bytes *jobs, uint64_t job,
                    bs_hold hold);

/* `OK length` CR LF data CR LF. */
void bs_reply_data(bs_server *server, bs_session *session, const char *data, size_t length, bs_hold hold);

/* `OK length` CR LF text CR LF, which depends on everything written so far; after an error OUT_OF_MEMORY. Frees the
 * text. */
void bs_reply_text(bs_server *server, bs_session *session, bs_bytes *text, int error);

/* A complete reply of one or more lines. */
void bs_reply_whole(bs_server *server, bs_session *session, const char *bytes, size_t length, bs_hold hold);

/* A part of a reply. */
void bs_reply_bytes(bs_server *server, bs_session *session, const char *bytes, size_t length, bs_hold hold);

#endif
