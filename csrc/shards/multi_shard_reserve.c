#include "shards/multi_shard_reserve.h"

#define TIMED_OUT "TIMED_OUT\r\n"
#define DEADLINE_SOON "DEADLINE_SOON\r\n"
#define INTERNAL_ERROR "INTERNAL_ERROR\r\n"

static void reply(bs_reserve *reserve, bs_reserve_call *call, const char *text)
{
    reserve->phase = BS_RESERVE_DONE;
    bs_reserve_reply(call, text);
}

/* --- one remote shard executes the reserve ---------------------------------------------------------------- */

static void reserve_remotely(bs_reserve *reserve, bs_reserve_call *call, uint32_t shard)
{
    reserve->phase = BS_RESERVE_REMOTE;
    reserve->token++;
    reserve->shard = (uint8_t)shard;
    reserve->polls = reserve->until <= bs_reserve_now(call);
    if (bs_reserve_shard_is_up(call, shard)) {
        bs_reserve_request_whole(call, shard, reserve->token, reserve->polls);
    } else if (reserve->polls) {
        reply(reserve, call, INTERNAL_ERROR);
        return;
    }
    if (!reserve->polls) /* for the timeout, and to detect that the client has closed its side */
        bs_reserve_request_wait(call, reserve->home, reserve->token, reserve->until);
}

static void cancel_remotely(bs_reserve *reserve, bs_reserve_call *call)
{
    if (bs_reserve_shard_is_up(call, reserve->shard)) {
        reserve->phase = BS_RESERVE_CANCELLING;
        bs_reserve_request_cancel(call, reserve->shard, reserve->token, true);
    } else {
        reply(reserve, call, TIMED_OUT);
    }
}

void bs_reserve_on_cancelled(bs_reserve *reserve, bs_reserve_call *call, uint64_t token, bool stopped)
{
    if (reserve->phase != BS_RESERVE_CANCELLING || token != reserve->token || !stopped)
        return;
    bs_reserve_withdraw(call);
    reply(reserve, call, TIMED_OUT);
}

/* --- waiting ---------------------------------------------------------------------------------------------- */

static void wait_at_all(bs_reserve *reserve, bs_reserve_call *call)
{
    reserve->phase = BS_RESERVE_WAITING;
    reserve->pending = (bs_shard_set){0};
    bs_shard_set_add(&reserve->pending, reserve->home);
    for (int s = bs_shard_set_next(&reserve->concerned, 0); s >= 0; s = bs_shard_set_next(&reserve->concerned, s + 1)) {
        if (s == reserve->home || !bs_reserve_shard_is_up(call, (uint32_t)s))
            continue;
        bs_shard_set_add(&reserve->pending, (uint32_t)s);
        bs_reserve_request_wait(call, (uint32_t)s, reserve->token, INT64_MAX);
    }
    /* The home worker has the timeout, even if the session watches none of its tubes. */
    bs_reserve_request_wait(call, reserve->home, reserve->token, reserve->until);
}

void bs_reserve_on_waited(bs_reserve *reserve, bs_reserve_call *call, uint32_t shard, uint64_t token, int how)
{
    if (token != reserve->token)
        return;
    if (reserve->phase == BS_RESERVE_REMOTE && how == BS_WAITED_TIMED_OUT)
        cancel_remotely(reserve, call);
    if (reserve->phase != BS_RESERVE_WAITING)
        return;
    bs_shard_set_remove(&reserve->pending, shard);
    for (int s = bs_shard_set_next(&reserve->pending, 0); s >= 0; s = bs_shard_set_next(&reserve->pending, s + 1))
        bs_reserve_request_cancel(call, (uint32_t)s, token, false);
    if (how == BS_WAITED_JOB) {
        reserve->phase = BS_RESERVE_TAKING;
        reserve->shard = (uint8_t)shard;
        bs_reserve_request_take(call, shard, token);
    } else {
        reply(reserve, call, how == BS_WAITED_TIMED_OUT ? TIMED_OUT : DEADLINE_SOON);
    }
}

/* --- the best job of several shards ----------------------------------------------------------------------- */

static void add_head(bs_reserve *reserve, uint32_t shard, const bs_head *head)
{
    bs_head *best = &reserve->best;
    best->soon = best->soon || head->soon;
    if (!head->id)
        return;
    const bool better = !best->id || head->pri < best->pri || (head->pri == best->pri && head->id < best->id);
    const uint32_t other = better ? best->pri : head->pri;
    if (best->id && other < reserve->other_pri)
        reserve->other_pri = other;
    if (!better)
        return;
    best->id = head->id;
    best->pri = head->pri;
    reserve->shard = (uint8_t)shard;
}

/* Adds the heads of all shards that have not been asked; asks those whose heads are not known. */
static void collect_heads(bs_reserve *reserve, bs_reserve_call *call, bool exact)
{
    for (int s = bs_shard_set_next(&reserve->concerned, 0); s >= 0; s = bs_shard_set_next(&reserve->concerned, s + 1)) {
        const uint32_t shard = (uint32_t)s;
        bs_head head;
        if (bs_shard_set_has(&reserve->asked, shard) || !bs_reserve_shard_is_up(call, shard))
            continue;
        if (bs_reserve_request_head(call, shard, reserve->token, exact, &head)) {
            add_head(reserve, shard, &head);
        } else {
            bs_shard_set_add(&reserve->asked, shard);
            bs_shard_set_add(&reserve->pending, shard);
        }
    }
}

/* The next job of the same shard will do if no other shard has a better one. After BS_STRICT_TRIES any job will do,
 * because many concurrent reserves would retry for long. */
static void claim(bs_reserve *reserve, bs_reserve_call *call)
{
    reserve->phase = BS_RESERVE_CLAIMING;
    if (reserve->tries <= BS_STRICT_TRIES)
        reserve->tries++;
    bs_reserve_request_claim(call, reserve->shard, reserve->token,
                             reserve->tries <= BS_STRICT_TRIES ? reserve->other_pri : BS_WORST_PRIORITY);
}

static void decide(bs_reserve *reserve, bs_reserve_call *call)
{
    if (reserve->best.id)
        claim(reserve, call);
    else if (reserve->best.soon)
        reply(reserve, call, DEADLINE_SOON);
    else if (reserve->until <= bs_reserve_now(call))
        reply(reserve, call, TIMED_OUT);
    else
        wait_at_all(reserve, call);
}

static void request_heads(bs_reserve *reserve, bs_reserve_call *call)
{
    reserve->phase = BS_RESERVE_HEADS;
    reserve->token++;
    reserve->best = (bs_head){0};
    reserve->other_pri = BS_WORST_PRIORITY;
    reserve->pending = reserve->asked = (bs_shard_set){0};
    collect_heads(reserve, call, false);
    if (!reserve->best.id && bs_shard_set_empty(&reserve->pending))
        collect_heads(reserve, call, true);
    if (bs_shard_set_empty(&reserve->pending))
        decide(reserve, call);
}

void bs_reserve_on_head(bs_reserve *reserve, bs_reserve_call *call, uint32_t shard, uint64_t token, const bs_head *head)
{
    if (reserve->phase != BS_RESERVE_HEADS || token != reserve->token)
        return;
    add_head(reserve, shard, head);
    bs_shard_set_remove(&reserve->pending, shard);
    if (!bs_shard_set_empty(&reserve->pending))
        return;
    if (!reserve->best.id)
        collect_heads(reserve, call, true);
    if (bs_shard_set_empty(&reserve->pending))
        decide(reserve, call);
}

void bs_reserve_on_slow(bs_reserve *reserve, bs_reserve_call *call)
{
    if (reserve->phase != BS_RESERVE_HEADS)
        return;
    reserve->pending = (bs_shard_set){0};
    decide(reserve, call);
}

/* --- the start and the end -------------------------------------------------------------------------------- */

void bs_reserve_start(bs_reserve *reserve, bs_reserve_call *call, uint32_t home, const bs_shard_set *concerned,
                      int64_t until)
{
    reserve->home = (uint8_t)home;
    reserve->concerned = *concerned;
    reserve->until = until;
    reserve->tries = 0;
    reserve->polls = false;
    const int first = bs_shard_set_next(concerned, 0);
    if (first >= 0 && first != (int)home && bs_shard_set_next(concerned, first + 1) < 0)
        reserve_remotely(reserve, call, (uint32_t)first);
    else
        request_heads(reserve, call);
}

void bs_reserve_on_lost(bs_reserve *reserve, bs_reserve_call *call, uint64_t token)
{
    if ((reserve->phase != BS_RESERVE_CLAIMING && reserve->phase != BS_RESERVE_TAKING) || token != reserve->token)
        return;
    bs_reserve_withdraw(call);
    request_heads(reserve, call);
}

void bs_reserve_on_done(bs_reserve *reserve)
{
    reserve->phase = BS_RESERVE_DONE;
}

/* --- workers end and restart ------------------------------------------------------------------------------ */

void bs_reserve_on_down(bs_reserve *reserve, bs_reserve_call *call, uint32_t shard)
{
    const bool pending = bs_shard_set_has(&reserve->pending, shard);
    bs_shard_set_remove(&reserve->pending, shard);
    switch (reserve->phase) {
    case BS_RESERVE_HEADS:
        /* Its head may be the best one so far. */
        if (pending || reserve->shard == shard)
            request_heads(reserve, call);
        break;
    case BS_RESERVE_CLAIMING:
    case BS_RESERVE_TAKING:
        if (reserve->shard == shard)
            request_heads(reserve, call);
        break;
    case BS_RESERVE_CANCELLING:
        if (reserve->shard == shard)
            reply(reserve, call, TIMED_OUT);
        break;
    case BS_RESERVE_REMOTE:
        if (reserve->shard == shard && reserve->polls) /* a poll has no timeout at the home worker */
            reply(reserve, call, INTERNAL_ERROR);
        break;
    default:
        break;
    }
}

void bs_reserve_on_up(bs_reserve *reserve, bs_reserve_call *call, uint32_t shard)
{
    if (!bs_shard_set_has(&reserve->concerned, shard))
        return;
    if (reserve->phase == BS_RESERVE_REMOTE) {
        bs_reserve_request_whole(call, shard, reserve->token, false);
    } else if (reserve->phase == BS_RESERVE_WAITING) {
        bs_shard_set_add(&reserve->pending, shard);
        bs_reserve_request_wait(call, shard, reserve->token, INT64_MAX);
    }
}
