/* One reserve of a session that watches tubes of several shards, from the command to its reply.
 *
 * The home worker looks at the best job (the head) of every shard concerned, and claims one at the shard with the best
 * head. If another session gets that job first, it starts again. If no shard has a job, it waits at all of them, takes
 * the first claim and cancels the others. Only the shard that has a job sends it to the client, after the claim is
 * decided. So no job is delivered twice, and none is lost between a claim and its cancellation.
 *
 * If the only shard concerned is remote, that shard executes the whole reserve.
 *
 *     HEADS ----> CLAIMING ----> DONE            (lost: HEADS again)
 *       |
 *       v
 *     WAITING --> TAKING ------> DONE            (lost: HEADS again)
 *     REMOTE ---> CANCELLING --> DONE            (CANCELLING after the timeout)
 *
 * A reserve skips a shard without a worker, and waits there again when the worker is back. This file does no I/O: it
 * calls the requests below, which reserve_requests.c implements, and gets events.
 */
#ifndef BS_MULTI_SHARD_RESERVE_H
#define BS_MULTI_SHARD_RESERVE_H

#include "shards/shard_set.h"

enum {
    BS_RESERVE_DONE, /* no reserve; or the client has its reply, or a shard sends it */
    BS_RESERVE_HEADS,
    BS_RESERVE_CLAIMING,
    BS_RESERVE_WAITING,
    BS_RESERVE_TAKING,
    BS_RESERVE_REMOTE,
    BS_RESERVE_CANCELLING
};

/* Claims of one reserve that accept only a job better than the heads of the other shards. */
enum { BS_STRICT_TRIES = 2 };

/* How a wait has ended. */
enum { BS_WAITED_JOB = 1, BS_WAITED_TIMED_OUT, BS_WAITED_DEADLINE_SOON };

/* The offer of one shard to a session that reserves. */
typedef struct {
    uint64_t id;    /* of the best job that it could have now; 0: none */
    uint32_t pri;
    uint32_t holds; /* how many jobs it holds there */
    bool soon;      /* a job that it holds there times out within a second */
} bs_head;

/* All zeros is no reserve. */
typedef struct {
    uint64_t token;         /* of its running step; rises over all reserves of the session */
    int64_t until;          /* mono; INT64_MAX: no timeout */
    int64_t requested_at;   /* mono; when the last request with a time limit was sent; of the implementation */
    bs_shard_set concerned;
    bs_shard_set pending;   /* HEADS: has not responded; WAITING: it waits there */
    bs_shard_set asked;     /* HEADS: has been asked by a message */
    bs_head best;           /* HEADS: of those known so far; `soon`: of any of them */
    uint32_t other_pri;     /* the best priority of the other shards, BS_WORST_PRIORITY without any */
    uint8_t shard;          /* of `best`; then of the last claim, take or whole reserve */
    uint8_t home;
    uint8_t phase;          /* BS_RESERVE_ */
    uint8_t tries;
    bool polls;             /* REMOTE: it does not wait */
} bs_reserve;

#define BS_WORST_PRIORITY UINT32_MAX

/* --- requests; each shard executes and answers them in order ---------------------------------------------- */

typedef struct bs_reserve_call bs_reserve_call; /* of the implementation: the session and the time */

int64_t bs_reserve_now(const bs_reserve_call *call);

bool bs_reserve_shard_is_up(const bs_reserve_call *call, uint32_t shard);

/* True: `head` is known now. False: the shard has been asked, and bs_reserve_on_head follows. `exact`: also whether a
 * held job times out soon is needed. */
bool bs_reserve_request_head(bs_reserve_call *call, uint32_t shard, uint64_t token, bool exact, bs_head *head);

/* Reserves the best job if its priority is `pri` or better, and replies: bs_reserve_on_done or _on_lost follows. */
void bs_reserve_request_claim(bs_reserve_call *call, uint32_t shard, uint64_t token, uint32_t pri);

/* Claims a job now or when there is one: bs_reserve_on_waited follows. */
void bs_reserve_request_wait(bs_reserve_call *call, uint32_t shard, uint64_t token, int64_t until);

/* Replies with the claimed job: bs_reserve_on_done or _on_lost follows. */
void bs_reserve_request_take(bs_reserve_call *call, uint32_t shard, uint64_t token);

/* Stops waiting and puts a claimed job back; with `confirm`, bs_reserve_on_cancelled follows. */
void bs_reserve_request_cancel(bs_reserve_call *call, uint32_t shard, uint64_t token, bool confirm);

/* Executes the whole reserve there, without waiting if `poll`: bs_reserve_on_done follows. */
void bs_reserve_request_whole(bs_reserve_call *call, uint32_t shard, uint64_t token, bool poll);

/* Sends the reply, a line; the reserve is over. */
void bs_reserve_reply(bs_reserve_call *call, const char *reply);

/* The shard of the last request sends no reply. */
void bs_reserve_withdraw(bs_reserve_call *call);

/* --- events: those of an earlier token, or that do not fit the phase, have no effect ---------------------- */

void bs_reserve_start(bs_reserve *reserve, bs_reserve_call *call, uint32_t home, const bs_shard_set *concerned,
                      int64_t until);
void bs_reserve_on_head(bs_reserve *reserve, bs_reserve_call *call, uint32_t shard, uint64_t token,
                        const bs_head *head);

/* Continues without the heads that have not arrived. */
void bs_reserve_on_slow(bs_reserve *reserve, bs_reserve_call *call);

/* `how` is BS_WAITED_. */
void bs_reserve_on_waited(bs_reserve *reserve, bs_reserve_call *call, uint32_t shard, uint64_t token, int how);

/* Another session got the job first. */
void bs_reserve_on_lost(bs_reserve *reserve, bs_reserve_call *call, uint64_t token);

/* The shard has executed a cancel; not `stopped`: its reply came first. */
void bs_reserve_on_cancelled(bs_reserve *reserve, bs_reserve_call *call, uint64_t token, bool stopped);

void bs_reserve_on_done(bs_reserve *reserve);

/* The worker of that shard has ended, or there is a new one. */
void bs_reserve_on_down(bs_reserve *reserve, bs_reserve_call *call, uint32_t shard);
void bs_reserve_on_up(bs_reserve *reserve, bs_reserve_call *call, uint32_t shard);

#endif
