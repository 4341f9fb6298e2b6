#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/load.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "load/load_replies.h"
#include "load/quantiles.h"

enum { INPUT_BYTES = 256 * 1024, EVENTS_MAX = 256, PUT_HEADER_MAX = 64, JOB_TTR = 600 };

static const char RESERVE[] = "reserve\r\n";
static const char RESERVE_NOW[] = "reserve-with-timeout 0\r\n";

typedef struct client {
    int fd;
    int role;
    int kind;              /* of the commands in flight */
    uint32_t pending;      /* replies of this batch that have not arrived */
    uint64_t rounds;
    bool finished;
    bool timed_out;        /* a reserve of this batch found nothing */
    uint64_t sent_ns;
    uint64_t due_ns;       /* with a rate: of the next puts */
    struct client *next_resting;
    char *puts;            /* owned; NULL: those of the load */
    const char *out;
    size_t out_left;
    bs_replies replies;
} client;

struct bs_load {
    bs_load_plan plan;
    int epoll_fd;
    uint32_t working;      /* clients except consumers that have not finished */
    client **clients;
    uint32_t count;
    uint32_t capacity;
    char *puts;
    size_t puts_bytes;
    char *reserves;        /* that wait for jobs */
    char *reserves_now;    /* that do not */
    char *input;           /* BS_REPLY_LINE_MAX bytes for the start of a line, then INPUT_BYTES */
    client *first_resting; /* with a rate: by due time */
    client *last_resting;
    bool stopping;
    uint64_t rounds;       /* of each client; 0: by time */
    uint64_t measure_from_ns;
    uint64_t measure_to_ns;
    uint64_t replied_ns;
    uint64_t random;
    uint64_t replied[BS_LOAD_KINDS];
    bs_quantiles quantiles[BS_LOAD_KINDS];
    char error[192];
    char refusal[48];
};

static uint64_t now_ns(void)
{
    return (uint64_t)bs_clock_mono();
}

static int fail(bs_load *load, const char *problem, const char *cause)
{
    (void)snprintf(load->error, sizeof load->error, "%s: %s", problem, cause);
    return -1;
}

/* --- commands --------------------------------------------------------------------------------------------- */

static uint64_t next_random(bs_load *load)
{
    load->random ^= load->random << 13;
    load->random ^= load->random >> 7;
    load->random ^= load->random << 17;
    return load->random;
}

/* Priorities below 1024 are urgent. */
static size_t write_put(bs_load *load, char *to)
{
    const uint32_t spread = load->plan.pri_spread;
    const uint64_t pri = 1024 + (spread > 1 ? next_random(load) % spread : 0);
    int header = 0;
    if (load->plan.unique)
        header = snprintf(to, PUT_HEADER_MAX, "with unique=%016" PRIx64 "\r\n", next_random(load));
    header += snprintf(to + header, PUT_HEADER_MAX, "put %" PRIu64 " 0 %d %" PRIu32 "\r\n", pri, JOB_TTR,
                       load->plan.body);
    memset(to + header, 'x', load->plan.body);
    memcpy(to + header + load->plan.body, "\r\n", 2);
    return (size_t)header + load->plan.body + 2;
}

/* Returns the bytes of a batch. */
static size_t write_puts(bs_load *load, char *to)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < load->plan.depth; i++)
        bytes += write_put(load, to + bytes);
    return bytes;
}

static size_t puts_bytes_max(const bs_load *load)
{
    return load->plan.depth * (2 * PUT_HEADER_MAX + (size_t)load->plan.body + 2);
}

static char *repeated(const char *line, size_t times)
{
    const size_t length = strlen(line);
    char *text = malloc(times * length);
    for (size_t i = 0; text && i < times; i++)
        memcpy(text + i * length, line, length);
    return text;
}

static bool build(bs_load *load)
{
    const size_t depth = load->plan.depth;
    load->puts = malloc(puts_bytes_max(load));
    load->reserves = repeated(RESERVE, depth);
    load->reserves_now = repeated(RESERVE_NOW, depth);
    load->input = malloc(BS_REPLY_LINE_MAX + INPUT_BYTES);
    if (!load->puts || !load->reserves || !load->reserves_now || !load->input)
        return false;
    load->puts_bytes = write_puts(load, load->puts);
    return true;
}

/* --- life ------------------------------------------------------------------------------------------------- */

int bs_load_new(const bs_load_plan *plan, bs_load **created)
{
    bs_load *load = calloc(1, sizeof *load);
    if (!load)
        return -ENOMEM;
    load->plan = *plan;
    load->random = UINT64_C(88172645463325252);
    if (plan->unique) /* no other load has these keys */
        load->random ^= now_ns();
    load->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int error = load->epoll_fd < 0 ? -errno : build(load) ? 0 : -ENOMEM;
    if (error)
        bs_load_free(load);
    else
        *created = load;
    return error;
}

static void free_client(client *c)
{
    free(c->replies.deletes);
    free(c->puts);
    free(c);
}

void bs_load_free(bs_load *load)
{
    if (!load)
        return;
    for (size_t i = 0; i < load->count; i++) {
        free_client(load->clients[i]);
    }
    free(load->clients);
    free(load->puts);
    free(load->reserves);
    free(load->reserves_now);
    free(load->input);
    if (load->epoll_fd >= 0)
        (void)close(load->epoll_fd);
    free(load);
}

int bs_load_add(bs_load *load, int fd, int role)
{
    load->clients = bs_must_grow_u32(load->clients, load->count, &load->capacity, sizeof(client *));
    client *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    c->fd = fd;
    c->role = role;
    c->finished = true; /* until bs_load_start */
    c->replies.deletes = malloc((size_t)load->plan.depth * BS_DELETE_MAX);
    c->puts = load->plan.unique ? malloc(puts_bytes_max(load)) : NULL;
    if (!c->replies.deletes || (load->plan.unique && !c->puts)) {
        free_client(c);
        return -ENOMEM;
    }
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.ptr = c}};
    if (epoll_ctl(load->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        const int error = -errno;
        free_client(c);
        return error;
    }
    load->clients[load->count++] = c;
    return 0;
}

/* --- rounds ----------------------------------------------------------------------------------------------- */

/* epoll reports when the rest can be sent. */
static int flush(bs_load *load, client *c)
{
    while (c->out_left > 0) {
        const ssize_t sent = send(c->fd, c->out, c->out_left, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN ? 0 : fail(load, "the connection is lost", strerror(errno));
        c->out += sent;
        c->out_left -= (size_t)sent;
    }
    return 0;
}

static int begin_batch(bs_load *load, client *c, int kind, uint64_t now)
{
    c->kind = kind;
    c->sent_ns = now;
    c->pending = load->plan.depth;
    if (kind == BS_LOAD_PUT) {
        c->out = c->puts ? c->puts : load->puts;
        c->out_left = c->puts ? write_puts(load, c->puts) : load->puts_bytes;
    } else if (kind == BS_LOAD_RESERVE) {
        const bool waits = c->role != BS_LOAD_DRAIN;
        c->timed_out = false;
        c->replies.delete_bytes = 0;
        c->replies.deletes_count = 0;
        c->out = waits ? load->reserves : load->reserves_now;
        c->out_left = (waits ? sizeof RESERVE - 1 : sizeof RESERVE_NOW - 1) * c->pending;
    } else {
        c->out = c->replies.deletes;
        c->out_left = c->replies.delete_bytes;
        c->pending = c->replies.deletes_count;
    }
    return flush(load, c);
}

static void finish(bs_load *load, client *c)
{
    if (c->finished)
        return;
    c->finished = true;
    if (c->role != BS_LOAD_CONSUMER)
        load->working--;
}

static bool is_over(const bs_load *load, const client *c, uint64_t now)
{
    if (load->stopping && c->role != BS_LOAD_DRAIN)
        return true;
    return load->rounds ? c->rounds >= load->rounds : c->role != BS_LOAD_DRAIN && now >= load->measure_to_ns;
}

/* Ends whole rounds only, so that no job is left in the server. */
static int begin_round(bs_load *load, client *c, uint64_t now)
{
    if (is_over(load, c, now)) {
        finish(load, c);
        return 0;
    }
    c->rounds++;
    const bool puts = c->role == BS_LOAD_CYCLES || c->role == BS_LOAD_PRODUCER;
    if (!puts)
        return begin_batch(load, c, BS_LOAD_RESERVE, now);
    if (load->plan.interval_ns == 0)
        return begin_batch(load, c, BS_LOAD_PUT, now);
    c->next_resting = NULL;
    *(load->first_resting ? &load->last_resting->next_resting : &load->first_resting) = c;
    load->last_resting = c;
    return 0;
}

static int begin_next(bs_load *load, client *c, uint64_t now)
{
    if (c->kind == BS_LOAD_PUT && c->role == BS_LOAD_CYCLES)
        return begin_batch(load, c, BS_LOAD_RESERVE, now);
    if (c->kind == BS_LOAD_RESERVE && c->replies.deletes_count > 0)
        return begin_batch(load, c, BS_LOAD_DELETE, now);
    if (c->role == BS_LOAD_DRAIN && c->timed_out) {
        finish(load, c);
        return 0;
    }
    return begin_round(load, c, now);
}

/* Starts the clients whose puts are due, and times them from then. */
static int wake_resting(bs_load *load, uint64_t now)
{
    for (client *c; (c = load->first_resting) && (c->due_ns <= now || load->stopping);) {
        load->first_resting = c->next_resting;
        const uint64_t due_ns = c->due_ns;
        c->due_ns += (uint64_t)load->plan.interval_ns;
        if (load->stopping || (!load->rounds && now >= load->measure_to_ns))
            finish(load, c);
        else if (begin_batch(load, c, BS_LOAD_PUT, due_ns) != 0)
            return -1;
    }
    return 0;
}

void bs_load_start(bs_load *load, int64_t warmup_ns, int64_t measured_ns, uint64_t rounds)
{
    const uint64_t now = now_ns();
    load->measure_from_ns = now + (uint64_t)warmup_ns;
    load->measure_to_ns = load->measure_from_ns + (uint64_t)measured_ns;
    load->rounds = rounds;
    load->replied_ns = now;
    load->stopping = false;
    load->working = 0;
    for (size_t i = 0; i < load->count; i++) {
        client *c = load->clients[i];
        c->finished = false;
        c->rounds = 0;
        c->kind = BS_LOAD_DELETE; /* as after a round: the first run begins the next one */
        c->pending = 0;
        /* Spread over the interval, so that they do not start together. */
        c->due_ns = now + (uint64_t)load->plan.interval_ns * i / load->count;
        load->working += c->role != BS_LOAD_CONSUMER;
    }
}

void bs_load_stop(bs_load *load)
{
    load->stopping = true;
}

/* --- replies ---------------------------------------------------------------------------------------------- */

static void count_replies(bs_load *load, const client *c, uint32_t done, uint64_t now)
{
    load->replied[c->kind] += done;
    if (done > 0 && now >= load->measure_from_ns && now < load->measure_to_ns)
        bs_quantiles_add(&load->quantiles[c->kind], now > c->sent_ns ? now - c->sent_ns : 0, done);
}

static int report_unexpected(bs_load *load, const client *c, const char *line, size_t length)
{
    static const char *const names[BS_LOAD_KINDS] = {"put", "reserve", "delete"};
    char word[40];
    size_t i = 0;
    for (; i < length && i < sizeof word - 1 && line[i] > ' ' && line[i] <= '~'; i++)
        word[i] = line[i];
    word[i] = '\0';
    (void)snprintf(load->refusal, sizeof load->refusal, "%s %s", names[c->kind], word);
    return fail(load, names[c->kind], "the reply is not the one expected");
}

static ptrdiff_t read_reply(const bs_load *load, client *c, const char *bytes, size_t n)
{
    if (load->plan.unique && c->kind == BS_LOAD_PUT)
        return bs_reply_read_unique(bytes, n);
    return bs_reply_read(&c->replies, c->kind, c->role == BS_LOAD_DRAIN ? UINT64_MAX : load->plan.body, bytes, n);
}

/* Parses n bytes of replies; adds the number of completed commands to *done. */
static int consume(bs_load *load, client *c, const char *bytes, size_t n, uint32_t *done)
{
    while (n > 0) {
        ptrdiff_t used;
        if (c->replies.skip > 0) {
            used = (ptrdiff_t)(n < c->replies.skip ? n : c->replies.skip);
            c->replies.skip -= (size_t)used;
        } else if (*done >= c->pending) {
            used = -1;
        } else {
            used = read_reply(load, c, bytes, n);
            if (used < 0 && c->role == BS_LOAD_DRAIN && c->kind == BS_LOAD_RESERVE &&
                (used = bs_reply_timed_out(bytes, n)) > 0)
                c->timed_out = true;
        }
        if (used < 0 || (used == 0 && n > sizeof c->replies.tail))
            return report_unexpected(load, c, bytes, n);
        if (used == 0) {
            memcpy(c->replies.tail, bytes, n);
            c->replies.tail_bytes = n;
            return 0;
        }
        bytes += used;
        n -= (size_t)used;
        if (c->replies.skip == 0)
            ++*done;
    }
    return 0;
}

/* One recv. *more: edge-triggered epoll may not report remaining bytes. */
static int receive(bs_load *load, client *c, uint32_t *done, bool *more)
{
    char *const start = load->input + BS_REPLY_LINE_MAX;
    const ssize_t got = recv(c->fd, start, INPUT_BYTES, MSG_DONTWAIT);
    *more = got == INPUT_BYTES || (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == EINTR || errno == EAGAIN ? 0 : fail(load, "the connection is lost", strerror(errno));
    if (got == 0)
        return fail(load, "the connection is lost", "the server closed it");
    const size_t tail = c->replies.tail_bytes;
    memcpy(start - tail, c->replies.tail, tail);
    c->replies.tail_bytes = 0;
    return consume(load, c, start - tail, (size_t)got + tail, done);
}

static int handle_events(bs_load *load, client *c, uint32_t events)
{
    if (flush(load, c) != 0)
        return -1;
    bool more = (events & ~(uint32_t)EPOLLOUT) != 0;
    while (more) {
        uint32_t done = 0;
        if (receive(load, c, &done, &more) != 0)
            return -1;
        const uint64_t now = now_ns();
        if (done > 0)
            load->replied_ns = now;
        c->pending -= done;
        count_replies(load, c, done, now);
        if (c->pending == 0 && done > 0 && begin_next(load, c, now) != 0)
            return -1;
    }
    return 0;
}

/* --- the run ---------------------------------------------------------------------------------------------- */

static int begin_all(bs_load *load)
{
    for (size_t i = 0; i < load->count; i++) {
        client *c = load->clients[i];
        if (!c->finished && c->rounds == 0 && c->pending == 0 && begin_round(load, c, now_ns()) != 0)
            return -1;
    }
    return 0;
}

/* Rounded down: the last millisecond is busy-waited, because being late counts as latency. */
static int wait_ms(const bs_load *load, uint64_t now, uint64_t until)
{
    if (load->first_resting && load->first_resting->due_ns < until)
        until = load->first_resting->due_ns;
    return until <= now ? 0 : (int)((until - now) / BS_MILLISECOND);
}

/* Consumers end after the producers; alone, after their time or rounds. */
static bool has_ended(const bs_load *load, uint64_t now)
{
    if (load->working > 0)
        return false;
    bool others = false;
    for (size_t i = 0; i < load->count; i++) {
        if (!load->clients[i]->finished && load->rounds)
            return false;
        others = others || load->clients[i]->role != BS_LOAD_CONSUMER;
    }
    return others || load->rounds || load->stopping || now >= load->measure_to_ns;
}

int bs_load_run(bs_load *load, int64_t budget_ns)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t now = now_ns();
    const uint64_t until = now + (uint64_t)budget_ns;
    if (begin_all(load) != 0)
        return -1;
    do {
        if (has_ended(load, now))
            return 0;
        if (wake_resting(load, now) != 0)
            return -1;
        const int n = epoll_wait(load->epoll_fd, events, EVENTS_MAX, wait_ms(load, now, until));
        if (n < 0 && errno != EINTR)
            return fail(load, "epoll_wait", strerror(errno));
        for (int i = 0; i < n; i++)
            if (handle_events(load, events[i].data.ptr, events[i].events) != 0)
                return -1;
        now = now_ns();
    } while (now < until);
    return !has_ended(load, now);
}

/* --- results ---------------------------------------------------------------------------------------------- */

const char *bs_load_error(const bs_load *load)
{
    return load->error;
}

const char *bs_load_refusal(const bs_load *load)
{
    return load->refusal;
}

int64_t bs_load_silence(const bs_load *load)
{
    return (int64_t)(now_ns() - load->replied_ns);
}

uint64_t bs_load_replies(const bs_load *load, int kind)
{
    return load->replied[kind];
}

void bs_load_measured(const bs_load *load, int kind, bs_load_times *times, const double *shares, double *at,
                      int shares_count)
{
    bs_quantiles all = {0};
    for (int i = 0; i < BS_LOAD_KINDS; i++)
        if (kind == i || kind == BS_LOAD_KINDS)
            bs_quantiles_merge(&all, &load->quantiles[i]);
    *times = (bs_load_times){all.count, bs_quantiles_mean(&all), (double)all.max_ns};
    for (int i = 0; i < shares_count; i++)
        at[i] = bs_quantiles_at(&all, shares[i]);
}
