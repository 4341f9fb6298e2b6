/* Commands that another worker has to execute: which ones, and how they get there and back.
 *
 * The session stays here. At the other worker a *proxy* stands for it, a session without a socket that is fed lines as
 * a client would send them, and whose replies are passed on to the client. Replies come in the order of the commands:
 *   R1  A session waits for the replies of one shard at a time; a command for another one, or for nobody else, stays
 *       unread (`stalled`) until they are there.
 *   R2  What is said of a session to a shard goes through one queue (mails.h) and arrives in that order.
 *
 * A proxy has no tube of its own. Lines that only proxies understand begin with a byte no command begins with:
 *   0x01 TUBE ID LINE   as if that tube were used; a put gets this id, which was taken when its line was read here
 *   0x02 +TUBE, -TUBE   watch, ignore, without a reply
 *   0x03 REPLY          says REPLY: keeps an answer that was found here in its place among the others
 */
#ifndef BS_ROUTE_H
#define BS_ROUTE_H

#include "parser.h"
#include "server.h"

enum {
    BS_TO_TUBE = 1,
    BS_TO_WATCH = 2,
    BS_TO_ECHO = 3,
    BS_PROXY_LINE_MAX = 512,
    BS_REPLY_HEAD_MAX = 224, /* USING and the longest name */
    BS_SHARD_WORDS = 4 /* of 64 bits: a set of BS_MAX_WORKERS shards */
};

/* What a session needs besides while other workers have a part in it. */
struct bs_route {
    uint64_t held[BS_SHARD_WORDS]; /* shards where it may hold jobs */
    uint64_t told[BS_SHARD_WORDS]; /* shards that know what it watches there */
    uint64_t token;                /* claims.h: of the wait under way or ended here */
    uint64_t claimed;              /* and the job it has claimed, 0: none */
    int64_t claimed_since;         /* that job was ready since, wall */
    uint64_t left;                 /* bytes of the body of the reply that is being passed on */
    uint64_t asked_bytes;
    uint32_t asked;                /* replies to come */
    uint32_t asked_shard;
    uint32_t away;                 /* replies in a row that came from `away_shard` */
    uint32_t away_shard;
    uint32_t stayed;               /* how often it could not move */
    bool moving;
    bool echoes;                   /* the first reply to come is known: it is `echo` */
    char echo[BS_REPLY_HEAD_MAX];
    uint8_t head_length;
    char head[BS_REPLY_HEAD_MAX];  /* the start of a reply whose first line is not complete */
};

static inline void bs_shard_set_add(uint64_t *set, uint32_t shard)
{
    set[shard / 64] |= UINT64_C(1) << shard % 64;
}

static inline void bs_shard_set_remove(uint64_t *set, uint32_t shard)
{
    set[shard / 64] &= ~(UINT64_C(1) << shard % 64);
}

static inline bool bs_shard_set_has(const uint64_t *set, uint32_t shard)
{
    return set[shard / 64] >> shard % 64 & 1;
}

/* The session's route, made now if need be; NULL when memory ran out, and the session is broken. */
bs_route *bs_route_of(bs_server *server, bs_session *session);

/* Are replies of other workers to come? */
static inline bool bs_route_owed(const bs_session *session)
{
    return session->route && session->route->asked > 0;
}

typedef enum {
    BS_ROUTE_HERE,  /* to be executed here */
    BS_ROUTE_GONE,  /* on its way */
    BS_ROUTE_STALL  /* not now: the session is stalled, the line has not been taken */
} bs_routed;

/* Where a command goes, for a session that is no proxy in a server of several workers. */
bs_routed bs_route_command(bs_server *server, bs_session *session, const bs_command *command, const char *line,
                           size_t length, bs_now now);

/* May a reply be given now? If not, the session is stalled. For what is answered before it is known as a command. */
bool bs_route_clear(bs_session *session);

/* Sends a put whose body is complete; frees the job. -ENOMEM: it is still the caller's. */
int bs_route_put(bs_server *server, bs_session *session, bs_job *job);

/* A reply that is found after its line was taken: in its place, whatever is still to come. */
void bs_route_reply(bs_server *server, bs_session *session, const char *text);

/* A reply after which everybody is to find this tube: if its worker does not know of it yet, by way of that worker. */
void bs_route_reply_told(bs_server *server, bs_session *session, const bs_tube *tube, const char *text);

/* What is watched of that tube's shard has changed. */
void bs_route_watch(bs_server *server, bs_session *session, const bs_tube *tube, bool watched);

/* A line that only proxies understand. */
void bs_route_proxy_line(bs_server *server, bs_session *session, const char *line, size_t length, bs_now now);

/* These are core.h's functions of the same name. */
void bs_route_tell_watches(bs_server *server, bs_session *session, uint32_t shard);
void bs_route_peer(bs_server *server, uint32_t shard, int state);

#endif
