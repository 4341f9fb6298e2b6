/* bench_load.c: applies the load of csrc/load/load_generator.c to a server of this machine, for tools/bench.
 *
 * Before the load it creates jobs, tubes and idle connections. A cycle is put, reserve, delete.
 *
 * Conventions: functions that can fail return 0, or -1 after calling `fail`; the first failure is the one reported.
 * Exit status: 0 done, 1 a wrong reply, a lost connection or a stall, 2 usage. The last line of stdout is one JSON
 * object; with --pause a line `ready` comes before it, and the load starts when a line arrives on stdin.
 */
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
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "api/load.h"

#define NS_PER_S 1000000000.0

enum {
    PUT_HEADER_MAX = 64,
    FILL_BATCH = 500,
    IDLE_CHUNK = 256,      /* connections opened before a pause for the server to accept them */
    STALL_MS = 30000,      /* the longest time without a reply, and the longest wait for --pause */
    CONNECTIONS_MAX = 19000
};

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

struct bench {
    struct options opt;
    struct sockaddr_in address;
    bs_load *load;
    uint64_t random;
    uint64_t setup_commands;
    uint64_t timed_ns; /* the time of the measured replies */
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

/* ---- Connections ---- */

static int connect_server(const struct bench *bench)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return fail_errno("socket");
    }
    const int one = 1;
    const struct timeval timeout = {.tv_sec = STALL_MS / 1000, .tv_usec = 0};
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0
        || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) != 0
        || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0) {
        (void)fail_errno("setsockopt");
    } else if (connect(fd, (const struct sockaddr *)&bench->address, sizeof bench->address) != 0) {
        (void)fail_errno("connect");
    } else {
        return fd;
    }
    (void)close(fd);
    return -1;
}

static uint64_t next_random(struct bench *bench)
{
    bench->random ^= bench->random << 13;
    bench->random ^= bench->random >> 7;
    bench->random ^= bench->random << 17;
    return bench->random;
}

/* Priority 1024 is the first one that is not urgent; --pri-spread N draws from the N values from there on. */
static size_t write_put(struct bench *bench, char *to, uint64_t delay, uint64_t body)
{
    const uint64_t pri = 1024 + (bench->opt.pri_spread > 1 ? next_random(bench) % bench->opt.pri_spread : 0);
    const int n = snprintf(to, PUT_HEADER_MAX, "put %" PRIu64 " %" PRIu64 " 600 %" PRIu64 "\r\n", pri, delay, body);
    const size_t header = n > 0 ? (size_t)n : 0;
    memset(to + header, 'x', (size_t)body);
    memcpy(to + header + body, "\r\n", 2);
    return header + (size_t)body + 2;
}

/* ---- Before the load: jobs, tubes, idle connections ---- */

static bool is_expected(const char *line, size_t length)
{
    static const char *const words[] = {"INSERTED ", "USING ", "WATCHING "};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t word = strlen(words[i]);
        if (length > word && memcmp(line, words[i], word) == 0) {
            return true;
        }
    }
    return false;
}

/* Reads this many replies of one line each. */
static int read_lines(int fd, uint64_t count)
{
    char line[128];
    size_t length = 0;
    while (count > 0) {
        const ssize_t got = recv(fd, line + length, sizeof line - length, 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? fail_errno("recv") : fail("the server closed a connection");
        }
        length += (size_t)got;
        for (const char *end; (end = memchr(line, '\n', length)) != NULL;) {
            const size_t size = (size_t)(end - line) + 1;
            if (!is_expected(line, size)) {
                return fail("unexpected reply before the load: %.*s", (int)(size > 40 ? 40 : size - 2), line);
            }
            length -= size;
            memmove(line, end + 1, length);
            count--;
        }
        if (length == sizeof line) {
            return fail("a reply before the load is too long");
        }
    }
    return 0;
}

/* Sends a whole batch and waits for all its replies. */
static int run_batch(struct bench *bench, int fd, uint64_t commands, const char *out, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t sent = send(fd, out, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return fail_errno("send");
        }
        if (sent > 0) {
            out += sent;
            bytes -= (size_t)sent;
        }
    }
    bench->setup_commands += commands;
    return read_lines(fd, commands);
}

static int fill_jobs(struct bench *bench, int fd, uint64_t count)
{
    char *batch = allocate(FILL_BATCH, PUT_HEADER_MAX + (size_t)bench->opt.body + 2);
    if (batch == NULL) {
        return -1;
    }
    int rc = 0;
    while (rc == 0 && count > 0) {
        const uint64_t jobs = count < FILL_BATCH ? count : FILL_BATCH;
        size_t bytes = 0;
        for (uint64_t i = 0; i < jobs; i++) {
            bytes += write_put(bench, batch + bytes, bench->opt.fill_delay, bench->opt.body);
        }
        rc = run_batch(bench, fd, jobs, batch, bytes);
        count -= jobs;
    }
    free(batch);
    return rc;
}

/* Puts one job with a delay of a year into each tube, which keeps the tube without a ready job. */
static int fill_tubes(struct bench *bench, int fd)
{
    enum { TUBES_BATCH = 100, TUBE_BYTES = 128 };
    static char batch[TUBES_BATCH * TUBE_BYTES];
    for (uint64_t tube = 0; tube < bench->opt.prefill_tubes;) {
        uint64_t tubes = 0;
        size_t bytes = 0;
        for (; tubes < TUBES_BATCH && tube < bench->opt.prefill_tubes; tubes++, tube++) {
            const int n = snprintf(batch + bytes, PUT_HEADER_MAX, "use bench-%" PRIu64 "\r\n", tube);
            bytes += n > 0 ? (size_t)n : 0;
            bytes += write_put(bench, batch + bytes, 31536000, 1);
        }
        if (run_batch(bench, fd, 2 * tubes, batch, bytes) != 0) {
            return -1;
        }
    }
    return 0;
}

static int prepare_jobs(struct bench *bench)
{
    if (bench->opt.fill == 0 && bench->opt.prefill_tubes == 0) {
        return 0;
    }
    const int fd = connect_server(bench);
    if (fd < 0) {
        return -1;
    }
    const int rc = fill_jobs(bench, fd, bench->opt.fill) != 0 || fill_tubes(bench, fd) != 0 ? -1 : 0;
    (void)close(fd);
    return rc;
}

/* The idle connections stay open until the process ends. */
static int open_idle(const struct bench *bench)
{
    const struct timespec moment = {.tv_sec = 0, .tv_nsec = 5000000};
    for (uint64_t i = 0; i < bench->opt.idle; i++) {
        if (connect_server(bench) < 0) {
            return -1;
        }
        if (i % IDLE_CHUNK == IDLE_CHUNK - 1) {
            (void)nanosleep(&moment, NULL);
        }
    }
    return 0;
}

static int use_own_tube(struct bench *bench, int fd, uint64_t number)
{
    char text[160];
    const int n = snprintf(text, sizeof text,
                           "use bench-own-%" PRIu64 "\r\nwatch bench-own-%" PRIu64 "\r\nignore default\r\n", number,
                           number);
    return run_batch(bench, fd, 3, text, n > 0 ? (size_t)n : 0);
}

/* The connections stay open until the process ends. */
static int open_clients(struct bench *bench)
{
    const bs_load_plan plan = {
        .depth = (uint32_t)bench->opt.inflight,
        .body = (uint32_t)bench->opt.body,
        .pri_spread = (uint32_t)bench->opt.pri_spread,
    };
    if (bs_load_new(&plan, &bench->load) != 0) {
        return fail("no memory or descriptors for the load");
    }
    for (uint64_t i = 0; i < bench->opt.connections; i++) {
        const int fd = connect_server(bench);
        if (fd < 0 || (bench->opt.tube_per_connection && use_own_tube(bench, fd, i) != 0)) {
            return -1;
        }
        if (bs_load_add(bench->load, fd, bench->opt.take > 0 ? BS_LOAD_CONSUMER : BS_LOAD_CYCLES) != 0) {
            return fail("no memory or descriptors for a connection");
        }
    }
    return 0;
}

/* The parent process may inspect the server while all connections are open and idle. */
static int wait_for_go(const struct bench *bench)
{
    if (!bench->opt.pause) {
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

static int run_to_end(struct bench *bench)
{
    for (int more = 1; more != 0;) {
        more = bs_load_run(bench->load, 1000000000);
        if (more < 0) {
            const char *refusal = bs_load_refusal(bench->load);
            return fail("%s%s%s", bs_load_error(bench->load), refusal[0] ? ": " : "", refusal);
        }
        if (more > 0 && bs_load_silence(bench->load) > STALL_MS * INT64_C(1000000)) {
            return fail("no reply for %d ms", STALL_MS);
        }
    }
    return 0;
}

/* Reserves and deletes jobs of a filled tube (timed) and puts as many (not timed), so that its size hardly changes. */
static int run_take(struct bench *bench)
{
    const uint64_t k = bench->opt.inflight;
    const uint64_t rounds = (bench->opt.take + k - 1) / k;
    const int filler = connect_server(bench);
    const uint64_t start = now_ns();
    int rc = filler < 0 ? -1 : 0;
    for (uint64_t now = start; rc == 0 && now - start < bench->opt.warmup_ns + bench->opt.seconds_ns; now = now_ns()) {
        const bool timed = now - start >= bench->opt.warmup_ns;
        bs_load_start(bench->load, 0, timed ? INT64_C(3600000000000) : 0, rounds);
        rc = run_to_end(bench);
        bench->timed_ns += timed ? now_ns() - now : 0;
        if (rc == 0) {
            rc = fill_jobs(bench, filler, rounds * k);
        }
    }
    if (filler >= 0) {
        (void)close(filler);
    }
    return rc;
}

static int run_load(struct bench *bench)
{
    if (bench->opt.seconds_ns == 0) {
        return 0;
    }
    if (bench->opt.take > 0) {
        return run_take(bench);
    }
    bench->timed_ns = bench->opt.seconds_ns;
    bs_load_start(bench->load, (int64_t)bench->opt.warmup_ns, (int64_t)bench->opt.seconds_ns, 0);
    return run_to_end(bench);
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

static int report(const struct bench *bench, double generator_us)
{
    static const double shares[] = {0.5, 0.99, 0.999};
    double at_ns[3] = {0};
    bs_load_times times = {0};
    uint64_t replies[BS_LOAD_KINDS] = {0};
    uint64_t commands = 0;
    if (bench->load != NULL) {
        bs_load_measured(bench->load, BS_LOAD_KINDS, &times, shares, at_ns, 3);
        for (int i = 0; i < BS_LOAD_KINDS; i++) {
            replies[i] = bs_load_replies(bench->load, i);
            commands += replies[i];
        }
    }
    const double seconds = (double)bench->timed_ns / NS_PER_S;
    const int n = printf(
        "{\"connections\": %" PRIu64 ", \"inflight\": %" PRIu64 ", \"puts\": %" PRIu64 ", \"reserves\": %" PRIu64
        ", \"deletes\": %" PRIu64 ", \"setup_commands\": %" PRIu64 ", \"commands\": %" PRIu64 ", \"measured\": %" PRIu64
        ", \"seconds\": %.6f, \"ops_per_s\": %.1f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f"
        ", \"mean_us\": %.2f, \"max_us\": %.2f, \"generator_cpu_us_per_op\": %.3f"
        ", \"errors\": %d, \"error\": \"%s\"}\n",
        bench->opt.connections, bench->opt.inflight, replies[BS_LOAD_PUT], replies[BS_LOAD_RESERVE],
        replies[BS_LOAD_DELETE], bench->setup_commands, commands, times.count, seconds,
        seconds > 0 ? (double)times.count / seconds : 0.0, at_ns[0] / 1000, at_ns[1] / 1000, at_ns[2] / 1000,
        times.mean_ns / 1000, times.max_ns / 1000, commands > 0 ? generator_us / (double)commands : 0.0,
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

/* Only this machine is accepted, so that the load generator cannot attack other servers. */
static int resolve(struct bench *bench)
{
    bench->address.sin_family = AF_INET;
    bench->address.sin_port = htons((uint16_t)bench->opt.port);
    if (inet_pton(AF_INET, bench->opt.host, &bench->address.sin_addr) != 1
        || ntohl(bench->address.sin_addr.s_addr) >> 24 != 127) {
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

static int prepare(struct bench *bench)
{
    if (resolve(bench) != 0 || raise_descriptor_limit() != 0) {
        return -1;
    }
    if (prepare_jobs(bench) != 0 || open_idle(bench) != 0 || open_clients(bench) != 0) {
        return -1;
    }
    return wait_for_go(bench);
}

int main(int argc, char **argv)
{
    static struct bench bench = {
        .opt = {.host = "127.0.0.1", .connections = 1, .inflight = 1, .seconds_ns = 1000000000, .warmup_ns = 300000000,
                .limit_ns = 900000000000, .body = 100},
        .random = UINT64_C(88172645463325252),
    };
    const int bad = parse_options(&bench.opt, argc, argv);
    if (bad != 0) {
        return bad;
    }
    /* A last resort that bounds every wait above. */
    (void)alarm((unsigned)(bench.opt.limit_ns / 1000000000U));
    int rc = prepare(&bench);
    const double before_us = cpu_us();
    if (rc == 0) {
        rc = run_load(&bench);
    }
    if (report(&bench, cpu_us() - before_us) != 0) {
        rc = -1;
    }
    bs_load_free(bench.load);
    return rc == 0 ? 0 : 1;
}
