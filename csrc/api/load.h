/* A load for any beanstalkd: connections that put, reserve and delete as fast as they are answered, or at a rate.
 *
 * Knows nothing of the server in this package. Sockets are connected, and use and watch their tubes, before they come
 * here; they stay the caller's.
 *
 * Cheap per command, so that the server is the limit: puts and reserves are built once and shared; the digits of a
 * RESERVED id are copied, never converted, into the deletes; one recv and one clock reading serve every reply that has
 * arrived; bodies are skipped by count; only a cut reply line is ever kept for the next recv.
 */
#ifndef BS_LOAD_H
#define BS_LOAD_H

#include <stdint.h>

/* cdef begin */

typedef struct bs_load bs_load;

/* What a connection does, always `depth` commands of one kind together. */
enum {
    BS_LOAD_CYCLES,   /* puts, reserves as many, deletes those: it never waits for a job, whoever gets whose */
    BS_LOAD_PRODUCER, /* puts */
    BS_LOAD_CONSUMER, /* reserves, waiting for jobs, and deletes them */
    BS_LOAD_DRAIN     /* reserves and deletes until there is no ready job */
};

enum { BS_LOAD_PUT, BS_LOAD_RESERVE, BS_LOAD_DELETE, BS_LOAD_KINDS };

typedef struct {
    uint32_t depth;      /* commands in flight of each connection, 1 at least */
    uint32_t body;       /* bytes of a job */
    uint32_t pri_spread; /* different priorities from 1024 on, at random; 0 is taken for 1 */
    int64_t interval_ns; /* from one batch of puts of a connection to the next; 0: as soon as it is answered */
} bs_load_plan;

/* 0 or -ENOMEM or another negative errno; after 0 the caller owns *made. NULL is ignored by bs_load_free. */
int bs_load_new(const bs_load_plan *plan, bs_load **made);
void bs_load_free(bs_load *load);

/* Adds a connected socket; it stays the caller's, who closes it after bs_load_free. 0 or a negative errno. */
int bs_load_add(bs_load *load, int fd, int role);

/* Begins: what is sent in the time after the warm-up is measured. Each connection ends after `rounds` if that is not 0,
 * else with the round that it is in when the time is over. Again after the end, it goes on counting. */
void bs_load_start(bs_load *load, int64_t warmup_ns, int64_t measured_ns, uint64_t rounds);

/* Begins no new round from now on. */
void bs_load_stop(bs_load *load);

/* Works for about `budget_ns`, and does at least what is at hand. 1: there is more to do; 0: it has ended, and consumers
 * may wait for jobs that do not come; -1: it has failed, see bs_load_error. */
int bs_load_run(bs_load *load, int64_t budget_ns);

/* Why it has failed: a sentence, and the command and the word of the reply that was not expected, or "". */
const char *bs_load_error(const bs_load *load);
const char *bs_load_refusal(const bs_load *load);

/* Nanoseconds since anything was answered. */
int64_t bs_load_silence(const bs_load *load);

/* Replies to commands of this kind since the beginning, measured or not. */
uint64_t bs_load_replies(const bs_load *load, int kind);

typedef struct {
    uint64_t count;
    double mean_ns;
    double max_ns;
} bs_load_times;

/* What was measured of commands of this kind, or of all (BS_LOAD_KINDS). `at` gets, for each of `count` shares (0 to
 * 1), what so many stayed within, nanoseconds. With a rate, puts are timed from when they were due. */
void bs_load_measured(const bs_load *load, int kind, bs_load_times *times, const double *shares, double *at, int count);

/* cdef end */

#endif
