/* A load generator for any beanstalkd: connections that put, reserve and delete as fast as possible, or at a rate.
 *
 * Independent of the server in this package. Sockets are connected, and use and watch their tubes, before bs_load_add;
 * the caller closes them.
 *
 * A command costs little CPU time, so that the server is the bottleneck: puts and reserves are built once and shared
 * (with `unique` each connection writes its own puts); the digits of RESERVED ids are copied into the deletes; one recv and one clock reading serve all replies that have
 * arrived; bodies are skipped by count; only an incomplete reply line is kept for the next recv.
 */
#ifndef BS_LOAD_H
#define BS_LOAD_H

#include <stdint.h>

/* cdef begin */

typedef struct bs_load bs_load;

/* The role of a connection; it sends batches of `depth` commands of one kind. */
enum {
    BS_LOAD_CYCLES,   /* puts, reserves as many without waiting, deletes those */
    BS_LOAD_PRODUCER, /* puts */
    BS_LOAD_CONSUMER, /* reserves, waiting for jobs, and deletes them */
    BS_LOAD_DRAIN     /* reserves and deletes until there is no ready job */
};

enum { BS_LOAD_PUT, BS_LOAD_RESERVE, BS_LOAD_DELETE, BS_LOAD_KINDS };

typedef struct {
    uint32_t depth;      /* commands in flight of each connection, 1 at least */
    uint32_t body;       /* of a job */
    uint32_t pri_spread; /* number of random priorities from 1024 on; 0 means 1 */
    int64_t interval_ns; /* between two batches of puts of a connection; 0: none */
    uint32_t unique;     /* not 0: each put follows a `with` that gives it a random key */
} bs_load_plan;

/* Returns 0 or a negative errno; after 0 the caller owns *created. bs_load_free ignores NULL. */
int bs_load_new(const bs_load_plan *plan, bs_load **created);
void bs_load_free(bs_load *load);

/* Adds a connected socket, which the caller closes after bs_load_free. 0 or a negative errno. */
int bs_load_add(bs_load *load, int fd, int role);

/* Starts the load; after the warm-up it is measured. Each connection ends after `rounds`, or if that is 0 with the
 * round that is running when the time is over. A second start continues the counts. */
void bs_load_start(bs_load *load, int64_t warmup_ns, int64_t measured_ns, uint64_t rounds);

/* Starts no new round. */
void bs_load_stop(bs_load *load);

/* Works for about `budget_ns`. 1: call again; 0: the load has ended, though consumers may still wait for jobs; -1: it
 * has failed. */
int bs_load_run(bs_load *load, int64_t budget_ns);

/* Returns why the load has failed, and the command and the first word of the unexpected reply, or "". */
const char *bs_load_error(const bs_load *load);
const char *bs_load_refusal(const bs_load *load);

/* Nanoseconds since the last reply. */
int64_t bs_load_silence(const bs_load *load);

/* Replies to commands of this kind, measured or not. */
uint64_t bs_load_replies(const bs_load *load, int kind);

typedef struct {
    uint64_t count;
    double mean_ns;
    double max_ns;
} bs_load_times;

/* Returns the measured times of commands of one kind, or of all (BS_LOAD_KINDS). `at` gets the quantile in nanoseconds
 * for each of `count` shares, 0 to 1. With a rate, puts are timed from when they were due. */
void bs_load_measured(const bs_load *load, int kind, bs_load_times *times, const double *shares, double *at, int count);

/* cdef end */

#endif
