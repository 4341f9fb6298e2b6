/* bench_load.c: a closed-loop load generator for the beanstalkd protocol.
 *
 * An operation is one command; a cycle is put, reserve, delete. Each connection sends K commands of one kind in one
 * send, waits for all K replies, then goes on to the next kind. A connection only reserves after its own K puts were
 * acknowledged, so there are always at least as many jobs as waiting reserves: nobody waits for ever, whoever gets
 * whose job.
 *
 * Cheap per operation, so that the server is the limit: the put and reserve batches are built once and shared; the
 * digits of a RESERVED id are copied, never converted, into the delete batch; one recv and one clock reading serve
 * every reply that has arrived; bodies are skipped by count; only a cut reply line (64 bytes at most) is ever kept
 * for the next recv.
 *
 * Conventions: functions that can fail return 0, or -1 after calling `fail`; the first failure is the one reported.
 * Exit status: 0 done, 1 a wrong reply, a lost connection or a stall, 2 usage. The last line of stdout is one JSON
 * object; with --pause a line `ready` comes before it, and the load starts when a line arrives on stdin.
 */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000.0

enum {
    LINE_MAX_BYTES = 64,   /* the longest reply line expected here is `RESERVED <20 digits> <10 digits>` */
    ID_DIGITS_MAX = 20,
    DELETE_BYTES = 7 + ID_DIGITS_MAX + 2,
    PUT_HEADER_MAX = 64,
    RECV_BYTES = 256 * 1024,
    EVENTS_MAX = 256,
    FILL_BATCH = 500,
    IDLE_CHUNK = 256,      /* connections opened before the server gets a moment to accept them */
    STALL_MS = 30000,      /* longer without any reply is a failure, and so is a longer wait for --pause */
    CONNECTIONS_MAX = 19000
};

/* Buckets of the histogram: 128 per power of two, so a value is known to 0.4% (half a bucket). */
enum { SUB_BITS = 7, SUB_COUNT = 1 << SUB_BITS, VALUE_BITS = 42, BUCKETS = (VALUE_BITS - SUB_BITS + 1) * SUB_COUNT };

enum phase { PHASE_PUT, PHASE_RESERVE, PHASE_DELETE, PHASE_SETUP, PHASES };

struct options {
    const char *host;
    uint64_t port;
    uint64_t connections;
    uint64_t inflight;
    uint64_t seconds_ns;
    uint64_t warmup_ns;
    uint64_t limit_ns;
    uint64_t body;
    uint64_t idle;
    uint64_t prefill_tubes;
    uint64_t fill;
    uint64_t fill_delay;
    uint64_t pri_spread;
    uint64_t take;
    uint64_t tube_per_connection;
    uint64_t pause;
};

struct client {
    int fd;
    enum phase phase;
    uint32_t pending;      /* replies of this batch that have not arrived */
    uint64_t sent_ns;
    const char *out;
    size_t out_left;
    size_t skip;           /* body bytes of a RESERVED still to come */
    size_t tail_bytes;
    size_t delete_bytes;
    char *deletes;         /* DELETE_BYTES for each command in flight */
    char tail[LINE_MAX_BYTES];
};

struct load {
    struct options opt;
    struct sockaddr_in address;
    int epoll_fd;
    uint32_t active;       /* clients that have not finished their last cycle */
    struct client *clients;
    char *puts;
    size_t puts_bytes;
    char *reserves;
    size_t reserves_bytes;
    char *input;           /* LINE_MAX_BYTES of room for a tail, then RECV_BYTES */
    uint64_t measure_from_ns;
    uint64_t measure_to_ns;
    uint64_t timed_ns;     /* what the measured replies are divided by */
    uint64_t measured;
    uint64_t replies[PHASES];
    uint64_t latency_sum_ns;
    uint64_t latency_max_ns;
    uint64_t buckets[BUCKETS];
    uint64_t random;
};

static char first_error[192];

__attribute__((format(printf, 1, 2))) static int fail(const char *format, ...)
{
    if (first_error[0] == '\0') {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(first_error, sizeof first_error, format, args);
        va_end(args);
    }
    return -1;
}

static int fail_errno(const char *what)
{
    return fail("%s: %s", what, strerror(errno));
}

static uint64_t now_ns(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0) {
        abort();
    }
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static void *allocate(size_t count, size_t bytes)
{
    void *p = calloc(count > 0 ? count : 1, bytes > 0 ? bytes : 1);
    if (p == NULL) {
        (void)fail("out of memory");
    }
    return p;
}

/* ---- Latency histogram ---- */

static size_t bucket_of(uint64_t value_ns)
{
    const uint64_t top = (UINT64_C(1) << VALUE_BITS) - 1;
    const uint64_t v = value_ns < top ? value_ns : top;
    if (v < SUB_COUNT) {
        return (size_t)v;
    }
    const unsigned shift = 63U - (unsigned)__builtin_clzll(v) - SUB_BITS;
    return (size_t)((shift + 1U) * SUB_COUNT + ((v >> shift) & (SUB_COUNT - 1)));
}

static double bucket_middle_ns(size_t bucket)
{
    if (bucket < SUB_COUNT) {
        return (double)bucket;
    }
    const unsigned shift = (unsigned)(bucket / SUB_COUNT) - 1U;
    const uint64_t low = (uint64_t)(SUB_COUNT + bucket % SUB_COUNT) << shift;
    return (double)low + (double)(UINT64_C(1) << shift) / 2.0;
}

static double percentile_us(const struct load *load, double share)
{
    const double wanted = share * (double)load->measured;
    uint64_t seen = 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        seen += load->buckets[i];
        if (load->buckets[i] > 0 && (double)seen >= wanted) {
            return bucket_middle_ns(i) / 1000.0;
        }
    }
    return 0.0;
}

static void count_replies(struct load *load, enum phase phase, uint32_t done, uint64_t now, uint64_t sent)
{
    load->replies[phase] += done;
    if (done == 0 || now < load->measure_from_ns || now >= load->measure_to_ns) {
        return;
    }
    const uint64_t latency = now - sent;
    load->measured += done;
    load->buckets[bucket_of(latency)] += done;
    load->latency_sum_ns += latency * done;
    if (latency > load->latency_max_ns) {
        load->latency_max_ns = latency;
    }
}

/* ---- Replies. Each reader returns the length of the line, 0 if it is cut, -1 if it is not the one expected. ---- */

static ptrdiff_t match(const char *p, size_t n, const char *word, size_t word_bytes)
{
    if (memcmp(p, word, n < word_bytes ? n : word_bytes) != 0) {
        return -1;
    }
    return n < word_bytes ? 0 : (ptrdiff_t)word_bytes;
}

#define MATCH(p, n, word) match((p), (n), (word), sizeof(word) - 1)

/* The index after the digits that begin at `from`, and after `ending`, which must follow them. */
static ptrdiff_t match_number(const char *p, size_t n, size_t from, const char *ending, size_t ending_bytes)
{
    size_t i = from;
    while (i < n && p[i] >= '0' && p[i] <= '9') {
        i++;
    }
    if (i - from > ID_DIGITS_MAX) {
        return -1;
    }
    if (i == n) {
        return 0;
    }
    if (i == from) {
        return -1;
    }
    const ptrdiff_t end = match(p + i, n - i, ending, ending_bytes);
    return end <= 0 ? end : (ptrdiff_t)i + end;
}

static ptrdiff_t read_inserted(const char *p, size_t n)
{
    const ptrdiff_t word = MATCH(p, n, "INSERTED ");
    return word <= 0 ? word : match_number(p, n, (size_t)word, "\r\n", 2);
}

static ptrdiff_t read_reserved(const struct load *load, struct client *c, const char *p, size_t n)
{
    const ptrdiff_t word = MATCH(p, n, "RESERVED ");
    if (word <= 0) {
        return word;
    }
    const ptrdiff_t id_end = match_number(p, n, (size_t)word, " ", 1);
    if (id_end <= 0) {
        return id_end;
    }
    const ptrdiff_t line_end = match_number(p, n, (size_t)id_end, "\r\n", 2);
    if (line_end <= 0) {
        return line_end;
    }
    uint64_t body = 0;
    for (ptrdiff_t i = id_end; i < line_end - 2; i++) {
        body = body * 10 + (uint64_t)(p[i] - '0');
    }
    if (body != load->opt.body) {
        return -1;
    }
    const size_t id_bytes = (size_t)(id_end - 1 - word);
    char *d = c->deletes + c->delete_bytes;
    memcpy(d, "delete ", 7);
    memcpy(d + 7, p + word, id_bytes);
    memcpy(d + 7 + id_bytes, "\r\n", 2);
    c->delete_bytes += 7 + id_bytes + 2;
    c->skip = (size_t)body + 2;
    return line_end;
}

static ptrdiff_t read_setup(const char *p, size_t n)
{
    const char *end = memchr(p, '\n', n);
    if (end == NULL) {
        return 0;
    }
    const size_t line = (size_t)(end - p) + 1;
    const bool expected = MATCH(p, line, "INSERTED ") > 0 || MATCH(p, line, "USING ") > 0
                          || MATCH(p, line, "WATCHING ") > 0;
    return expected ? (ptrdiff_t)line : -1;
}

static ptrdiff_t read_reply(const struct load *load, struct client *c, const char *p, size_t n)
{
    switch (c->phase) {
    case PHASE_PUT:
        return read_inserted(p, n);
    case PHASE_RESERVE:
        return read_reserved(load, c, p, n);
    case PHASE_DELETE:
        return MATCH(p, n, "DELETED\r\n");
    case PHASE_SETUP:
        return read_setup(p, n);
    case PHASES:
        break;
    }
    return -1;
}

static int fail_reply(const struct client *c, const char *p, size_t n)
{
    static const char *const names[PHASES] = {"put", "reserve", "delete", "setup"};
    char text[48];
    size_t i = 0;
    for (; i < n && i < sizeof text - 1 && p[i] != '\r' && p[i] != '\n'; i++) {
        const char b = p[i];
        text[i] = (b >= ' ' && b <= '~' && b != '"' && b != '\\') ? b : '?';
    }
    text[i] = '\0';
    return fail("unexpected reply to %s: %s", names[c->phase], text);
}

/* Takes n bytes of replies; the number of commands they complete is added to *done. */
static int client_consume(const struct load *load, struct client *c, const char *p, size_t n, uint32_t *done)
{
    while (n > 0) {
        ptrdiff_t used;
        if (c->skip > 0) {
            used = (ptrdiff_t)(n < c->skip ? n : c->skip);
            c->skip -= (size_t)used;
        } else {
            used = *done < c->pending ? read_reply(load, c, p, n) : -1;
            if (used < 0) {
                return fail_reply(c, p, n);
            }
        }
        if (used == 0) {
            if (n > sizeof c->tail) {
                return fail_reply(c, p, n);
            }
            memcpy(c->tail, p, n);
            c->tail_bytes = n;
            return 0;
        }
        p += used;
        n -= (size_t)used;
        if (c->skip == 0) {
            ++*done;
        }
    }
    return 0;
}

/* One recv. Returns 0 also when nothing had arrived; *done tells what was completed, *more whether epoll, which is
 * edge-triggered, may stay silent about bytes left behind: only a recv that was interrupted or filled its buffer. */
static int client_receive(struct load *load, struct client *c, int flags, uint32_t *done, bool *more)
{
    char *const start = load->input + LINE_MAX_BYTES;
    const ssize_t got = recv(c->fd, start, RECV_BYTES, flags);
    *more = got == RECV_BYTES || (got < 0 && errno == EINTR);
    if (got < 0) {
        return (errno == EINTR || (errno == EAGAIN && flags != 0)) ? 0 : fail_errno("recv");
    }
    if (got == 0) {
        return fail("the server closed a connection");
    }
    const size_t tail = c->tail_bytes;
    memcpy(start - tail, c->tail, tail);
    c->tail_bytes = 0;
    return client_consume(load, c, start - tail, (size_t)got + tail, done);
}

/* ---- Connections ---- */

static int connect_server(const struct load *load)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return fail_errno("socket");
    }
    const int one = 1;
    const struct timeval patience = {.tv_sec = STALL_MS / 1000, .tv_usec = 0};
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0
        || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0
        || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0) {
        (void)fail_errno("setsockopt");
    } else if (connect(fd, (const struct sockaddr *)&load->address, sizeof load->address) != 0) {
        (void)fail_errno("connect");
    } else {
        return fd;
    }
    (void)close(fd);
    return -1;
}

static int client_open(struct load *load, struct client *c, uint64_t inflight)
{
    c->deletes = allocate(inflight, DELETE_BYTES);
    if (c->deletes == NULL) {
        return -1;
    }
    c->fd = connect_server(load);
    return c->fd < 0 ? -1 : 0;
}

static void client_close(struct client *c)
{
    if (c->fd >= 0) {
        (void)close(c->fd);
    }
    free(c->deletes);
}

/* Sends a whole batch and waits for all its replies: for what happens before the load. */
static int client_run(struct load *load, struct client *c, enum phase phase, uint32_t commands, const char *out,
                      size_t bytes)
{
    c->phase = phase;
    c->pending = commands;
    c->sent_ns = now_ns();
    while (bytes > 0) {
        const ssize_t sent = send(c->fd, out, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return fail_errno("send");
        }
        if (sent > 0) {
            out += sent;
            bytes -= (size_t)sent;
        }
    }
    while (c->pending > 0) {
        uint32_t done = 0;
        bool more = false;
        if (client_receive(load, c, 0, &done, &more) != 0) {
            return -1;
        }
        c->pending -= done;
        count_replies(load, phase, done, now_ns(), c->sent_ns);
    }
    return 0;
}

/* ---- Batches ---- */

static uint64_t next_random(struct load *load)
{
    load->random ^= load->random << 13;
    load->random ^= load->random >> 7;
    load->random ^= load->random << 17;
    return load->random;
}

/* Priority 1024 is the first one that is not urgent; --pri-spread N draws from the N values from there on. */
static size_t write_put(struct load *load, char *to, uint64_t delay, uint64_t body)
{
    const uint64_t pri = 1024 + (load->opt.pri_spread > 1 ? next_random(load) % load->opt.pri_spread : 0);
    const int n = snprintf(to, PUT_HEADER_MAX, "put %" PRIu64 " %" PRIu64 " 600 %" PRIu64 "\r\n", pri, delay, body);
    const size_t header = n > 0 ? (size_t)n : 0;
    memset(to + header, 'x', (size_t)body);
    memcpy(to + header + body, "\r\n", 2);
    return header + (size_t)body + 2;
}

static int load_build_batches(struct load *load)
{
    const uint64_t k = load->opt.inflight;
    load->puts = allocate(k, PUT_HEADER_MAX + (size_t)load->opt.body + 2);
    load->reserves = allocate(k, sizeof "reserve\r\n");
    load->input = allocate(1, LINE_MAX_BYTES + RECV_BYTES);
    if (load->puts == NULL || load->reserves == NULL || load->input == NULL) {
        return -1;
    }
    for (uint64_t i = 0; i < k; i++) {
        load->puts_bytes += write_put(load, load->puts + load->puts_bytes, 0, load->opt.body);
        memcpy(load->reserves + load->reserves_bytes, "reserve\r\n", 9);
        load->reserves_bytes += 9;
    }
    return 0;
}

/* ---- Before the load: jobs, tubes, idle connections ---- */

static int fill_jobs(struct load *load, struct client *c, uint64_t count)
{
    char *batch = allocate(FILL_BATCH, PUT_HEADER_MAX + (size_t)load->opt.body + 2);
    if (batch == NULL) {
        return -1;
    }
    int rc = 0;
    while (rc == 0 && count > 0) {
        const uint32_t jobs = count < FILL_BATCH ? (uint32_t)count : FILL_BATCH;
        size_t bytes = 0;
        for (uint32_t i = 0; i < jobs; i++) {
            bytes += write_put(load, batch + bytes, load->opt.fill_delay, load->opt.body);
        }
        rc = client_run(load, c, PHASE_SETUP, jobs, batch, bytes);
        count -= jobs;
    }
    free(batch);
    return rc;
}

/* One job in each tube, delayed by a year, so that the tube stays and its job is never ready. */
static int fill_tubes(struct load *load, struct client *c)
{
    enum { TUBES_BATCH = 100, TUBE_BYTES = 128 };
    static char batch[TUBES_BATCH * TUBE_BYTES];
    for (uint64_t tube = 0; tube < load->opt.prefill_tubes;) {
        uint32_t tubes = 0;
        size_t bytes = 0;
        for (; tubes < TUBES_BATCH && tube < load->opt.prefill_tubes; tubes++, tube++) {
            const int n = snprintf(batch + bytes, PUT_HEADER_MAX, "use bench-%" PRIu64 "\r\n", tube);
            bytes += n > 0 ? (size_t)n : 0;
            bytes += write_put(load, batch + bytes, 31536000, 1);
        }
        if (client_run(load, c, PHASE_SETUP, 2 * tubes, batch, bytes) != 0) {
            return -1;
        }
    }
    return 0;
}

static int prepare_jobs(struct load *load)
{
    if (load->opt.fill == 0 && load->opt.prefill_tubes == 0) {
        return 0;
    }
    struct client c = {.fd = -1};
    int rc = client_open(load, &c, 1);
    if (rc == 0) {
        rc = fill_jobs(load, &c, load->opt.fill);
    }
    if (rc == 0) {
        rc = fill_tubes(load, &c);
    }
    client_close(&c);
    return rc;
}

/* The idle connections stay open until the process ends, which closes them. */
static int open_idle(const struct load *load)
{
    const struct timespec moment = {.tv_sec = 0, .tv_nsec = 5000000};
    for (uint64_t i = 0; i < load->opt.idle; i++) {
        if (connect_server(load) < 0) {
            return -1;
        }
        if (i % IDLE_CHUNK == IDLE_CHUNK - 1) {
            (void)nanosleep(&moment, NULL);
        }
    }
    return 0;
}

static int use_own_tube(struct load *load, struct client *c, uint64_t number)
{
    char text[160];
    const int n = snprintf(text, sizeof text,
                           "use bench-own-%" PRIu64 "\r\nwatch bench-own-%" PRIu64 "\r\nignore default\r\n", number,
                           number);
    return client_run(load, c, PHASE_SETUP, 3, text, n > 0 ? (size_t)n : 0);
}

static int open_clients(struct load *load)
{
    load->clients = allocate(load->opt.connections, sizeof *load->clients);
    load->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (load->clients == NULL || load->epoll_fd < 0) {
        return load->clients == NULL ? -1 : fail_errno("epoll_create1");
    }
    for (uint64_t i = 0; i < load->opt.connections; i++) {
        struct client *c = &load->clients[i];
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.ptr = c}};
        if (client_open(load, c, load->opt.inflight) != 0) {
            return -1;
        }
        if (load->opt.tube_per_connection && use_own_tube(load, c, i) != 0) {
            return -1;
        }
        if (epoll_ctl(load->epoll_fd, EPOLL_CTL_ADD, c->fd, &event) != 0) {
            return fail_errno("epoll_ctl");
        }
    }
    return 0;
}

/* Whoever started us may want to look at the server first, with everything open and nothing running. */
static int wait_for_go(const struct load *load)
{
    if (!load->opt.pause) {
        return 0;
    }
    if (puts("ready") == EOF || fflush(stdout) != 0) {
        return fail_errno("stdout");
    }
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    char line[16];
    if (poll(&in, 1, STALL_MS) != 1 || read(STDIN_FILENO, line, sizeof line) <= 0) {
        return fail("nobody said go");
    }
    return 0;
}

/* ---- The load ---- */

/* What does not fit now goes out when epoll reports room. */
static int client_flush(struct client *c)
{
    while (c->out_left > 0) {
        const ssize_t sent = send(c->fd, c->out, c->out_left, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            return errno == EAGAIN ? 0 : fail_errno("send");
        }
        c->out += sent;
        c->out_left -= (size_t)sent;
    }
    return 0;
}

static int client_begin(const struct load *load, struct client *c, enum phase phase, uint64_t now)
{
    c->phase = phase;
    c->pending = (uint32_t)load->opt.inflight;
    c->sent_ns = now;
    if (phase == PHASE_PUT) {
        c->out = load->puts;
        c->out_left = load->puts_bytes;
    } else if (phase == PHASE_RESERVE) {
        c->delete_bytes = 0;
        c->out = load->reserves;
        c->out_left = load->reserves_bytes;
    } else {
        c->out = c->deletes;
        c->out_left = c->delete_bytes;
    }
    return client_flush(c);
}

static int client_next(struct load *load, struct client *c, uint64_t now)
{
    if (c->phase != PHASE_DELETE) {
        return client_begin(load, c, c->phase == PHASE_PUT ? PHASE_RESERVE : PHASE_DELETE, now);
    }
    /* Only whole cycles are left behind, so that the server ends as empty as it began. */
    if (now >= load->measure_to_ns) {
        load->active--;
        return 0;
    }
    return client_begin(load, c, PHASE_PUT, now);
}

static int client_ready(struct load *load, struct client *c, uint32_t events)
{
    if (client_flush(c) != 0) {
        return -1;
    }
    bool more = (events & ~(uint32_t)EPOLLOUT) != 0;
    while (more) {
        uint32_t done = 0;
        if (client_receive(load, c, MSG_DONTWAIT, &done, &more) != 0) {
            return -1;
        }
        const uint64_t now = now_ns();
        c->pending -= done;
        count_replies(load, c->phase, done, now, c->sent_ns);
        if (c->pending == 0 && done > 0 && client_next(load, c, now) != 0) {
            return -1;
        }
    }
    return 0;
}

static int run_cycles(struct load *load)
{
    struct epoll_event events[EVENTS_MAX];
    const uint64_t start = now_ns();
    load->measure_from_ns = start + load->opt.warmup_ns;
    load->measure_to_ns = load->measure_from_ns + load->opt.seconds_ns;
    load->timed_ns = load->opt.seconds_ns;
    load->active = (uint32_t)load->opt.connections;
    for (uint64_t i = 0; i < load->opt.connections; i++) {
        if (client_begin(load, &load->clients[i], PHASE_PUT, now_ns()) != 0) {
            return -1;
        }
    }
    while (load->active > 0) {
        const int n = epoll_wait(load->epoll_fd, events, EVENTS_MAX, STALL_MS);
        if (n < 0 && errno != EINTR) {
            return fail_errno("epoll_wait");
        }
        if (n == 0) {
            return fail("no reply for %d ms", STALL_MS);
        }
        for (int i = 0; i < n; i++) {
            if (client_ready(load, events[i].data.ptr, events[i].events) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

/* Takes jobs off a filled tube (timed) and puts as many back (not timed), so that its size hardly changes. */
static int run_take(struct load *load)
{
    struct client *c = &load->clients[0];
    const uint32_t k = (uint32_t)load->opt.inflight;
    const uint64_t start = now_ns();
    uint64_t now = start;
    while (now - start < load->opt.warmup_ns + load->opt.seconds_ns) {
        const bool timed = now - start >= load->opt.warmup_ns;
        load->measure_to_ns = timed ? UINT64_MAX : 0;
        for (uint64_t taken = 0; taken < load->opt.take; taken += k) {
            c->delete_bytes = 0;
            if (client_run(load, c, PHASE_RESERVE, k, load->reserves, load->reserves_bytes) != 0
                || client_run(load, c, PHASE_DELETE, k, c->deletes, c->delete_bytes) != 0) {
                return -1;
            }
        }
        load->timed_ns += timed ? now_ns() - now : 0;
        load->measure_to_ns = 0;
        if (fill_jobs(load, c, (load->opt.take + k - 1) / k * k) != 0) {
            return -1;
        }
        now = now_ns();
    }
    return 0;
}

static int run_load(struct load *load)
{
    if (load->opt.seconds_ns == 0) {
        return 0;
    }
    memset(load->replies, 0, sizeof load->replies);
    return load->opt.take > 0 ? run_take(load) : run_cycles(load);
}

/* ---- Options and report ---- */

static double cpu_us(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) {
        return 0.0;
    }
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6
           + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static int report(const struct load *load, double generator_us)
{
    const double seconds = (double)load->timed_ns / NS_PER_S;
    const double measured = (double)load->measured;
    const uint64_t *r = load->replies;
    const uint64_t commands = r[PHASE_PUT] + r[PHASE_RESERVE] + r[PHASE_DELETE];
    const int n = printf(
        "{\"connections\": %" PRIu64 ", \"inflight\": %" PRIu64 ", \"puts\": %" PRIu64 ", \"reserves\": %" PRIu64
        ", \"deletes\": %" PRIu64 ", \"setup_commands\": %" PRIu64 ", \"commands\": %" PRIu64 ", \"measured\": %" PRIu64
        ", \"seconds\": %.6f, \"ops_per_s\": %.1f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f"
        ", \"mean_us\": %.2f, \"max_us\": %.2f, \"generator_cpu_us_per_op\": %.3f"
        ", \"errors\": %d, \"error\": \"%s\"}\n",
        load->opt.connections, load->opt.inflight, r[PHASE_PUT], r[PHASE_RESERVE], r[PHASE_DELETE], r[PHASE_SETUP],
        commands, load->measured, seconds, seconds > 0 ? measured / seconds : 0.0, percentile_us(load, 0.5),
        percentile_us(load, 0.99), percentile_us(load, 0.999),
        load->measured > 0 ? (double)load->latency_sum_ns / measured / 1000.0 : 0.0,
        (double)load->latency_max_ns / 1000.0, commands > 0 ? generator_us / (double)commands : 0.0,
        first_error[0] != '\0' ? 1 : 0, first_error);
    return n < 0 || fflush(stdout) != 0 ? -1 : 0;
}

struct option_spec {
    const char *name;
    uint64_t *value;
    double min;
    double max;       /* 0 for a flag, which takes no value */
    double scale;     /* NS_PER_S for a time, which may have a fraction */
    const char *help;
};

static int usage(const struct option_spec *specs, size_t count, const char *problem)
{
    (void)fprintf(stderr, "bench_load: %s\nusage: bench_load --port PORT [--host 127.x.x.x] [options]\n", problem);
    for (size_t i = 0; i < count; i++) {
        (void)fprintf(stderr, "  %-22s %s\n", specs[i].name, specs[i].help);
    }
    return 2;
}

static bool parse_value(const struct option_spec *spec, const char *text)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= spec->min && value <= spec->max)) {
        return false;
    }
    *spec->value = (uint64_t)(value * spec->scale);
    return true;
}

static int parse_options(struct options *o, int argc, char **argv)
{
    const struct option_spec specs[] = {
        {"--port", &o->port, 1, 65535, 1, "the server's port"},
        {"--connections", &o->connections, 1, CONNECTIONS_MAX, 1, "connections that work (1)"},
        {"--inflight", &o->inflight, 1, 10000, 1, "commands each has in flight (1)"},
        {"--seconds", &o->seconds_ns, 0, 600, NS_PER_S, "measured time (1); 0 only prepares"},
        {"--warmup", &o->warmup_ns, 0, 60, NS_PER_S, "time before it that is not measured (0.3)"},
        {"--limit", &o->limit_ns, 1, 7200, NS_PER_S, "the process is killed after this time (900)"},
        {"--body", &o->body, 0, 1048576, 1, "bytes in a job (100)"},
        {"--idle", &o->idle, 0, CONNECTIONS_MAX, 1, "connections that are opened and say nothing (0)"},
        {"--prefill-tubes", &o->prefill_tubes, 0, 1e6, 1, "tubes to make, with one delayed job in each (0)"},
        {"--fill", &o->fill, 0, 1e9, 1, "jobs to put into the default tube first (0)"},
        {"--fill-delay", &o->fill_delay, 0, 4294967295.0, 1, "delay of those jobs (0)"},
        {"--pri-spread", &o->pri_spread, 0, 1e9, 1, "number of different priorities, at random (1)"},
        {"--take", &o->take, 0, 1e9, 1, "instead of cycles: take this many, then fill up again, on one connection"},
        {"--tube-per-connection", &o->tube_per_connection, 0, 0, 1, "each connection uses and watches its own tube"},
        {"--pause", &o->pause, 0, 0, 1, "print `ready` and wait for a line before the load"},
    };
    const size_t count = sizeof specs / sizeof specs[0];
    for (int i = 1; i < argc; i++) {
        size_t s = 0;
        while (s < count && strcmp(argv[i], specs[s].name) != 0) {
            s++;
        }
        if (s < count && specs[s].max == 0.0) {
            *specs[s].value = 1;
        } else if (i + 1 == argc) {
            return usage(specs, count, argv[i]);
        } else if (s < count && parse_value(&specs[s], argv[i + 1])) {
            i++;
        } else if (s == count && strcmp(argv[i], "--host") == 0) {
            o->host = argv[++i];
        } else {
            return usage(specs, count, argv[i]);
        }
    }
    if (o->port == 0) {
        return usage(specs, count, "--port is missing");
    }
    if (o->take > 0 && o->fill < o->take + o->inflight) {
        return usage(specs, count, "--take needs a larger --fill, or its reserves would wait for ever");
    }
    return 0;
}

/* A load generator pointed at somebody else's server is a weapon, so only this machine is accepted. */
static int resolve(struct load *load)
{
    load->address.sin_family = AF_INET;
    load->address.sin_port = htons((uint16_t)load->opt.port);
    if (inet_pton(AF_INET, load->opt.host, &load->address.sin_addr) != 1
        || ntohl(load->address.sin_addr.s_addr) >> 24 != 127) {
        return fail("not a loopback address (127.x.x.x)");
    }
    return 0;
}

static int raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return fail_errno("getrlimit");
    }
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? 0 : fail_errno("setrlimit");
}

static int prepare(struct load *load)
{
    if (resolve(load) != 0 || raise_descriptor_limit() != 0 || load_build_batches(load) != 0) {
        return -1;
    }
    if (prepare_jobs(load) != 0 || open_idle(load) != 0 || open_clients(load) != 0) {
        return -1;
    }
    return wait_for_go(load);
}

int main(int argc, char **argv)
{
    static struct load load = {
        .opt = {.host = "127.0.0.1", .connections = 1, .inflight = 1, .seconds_ns = 1000000000, .warmup_ns = 300000000,
                .limit_ns = 900000000000, .body = 100},
        .random = UINT64_C(88172645463325252),
        .epoll_fd = -1,
    };
    const int bad = parse_options(&load.opt, argc, argv);
    if (bad != 0) {
        return bad;
    }
    /* The last resort that bounds every wait above, whatever the server does. */
    (void)alarm((unsigned)(load.opt.limit_ns / 1000000000U));
    int rc = prepare(&load);
    const double before_us = cpu_us();
    if (rc == 0) {
        rc = run_load(&load);
    }
    if (report(&load, cpu_us() - before_us) != 0) {
        rc = -1;
    }
    return rc == 0 ? 0 : 1;
}
