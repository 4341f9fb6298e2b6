/* Bodies beyond memory (bs_config.body_memory): which separate bodies of jobs are loaded, and how dropped ones come back.
 *
 * A *loaded* body is in memory. A *dropped* one is only in the full entry of its job: in its binlog file, or in the
 * buffer of the round. A put drops its own body when the limit is reached, unless the job is the first of its tube,
 * because most jobs leave in the order of their puts. When a body is needed, the entries that follow it in the file are
 * read with it, and the bodies of jobs near the heads of their tubes are loaded; the kernel reads on meanwhile. Loaded
 * bodies are dropped in the order of loading, those near a head later.
 *
 * Invariants:
 *   M1  `file`, `offset` and `sum` of a job with a dropped body are those of its last full entry. B3 keeps that file.
 *   M2  A body comes back only from an entry with the size and the checksum that memory has of it.
 *   M3  At most `limit` bytes are loaded, without the bodies that are arriving, the one needed last, and those at offsets
 *       that a bs_body_place cannot have.
 *   M4  A job is reserved only with its body loaded. A damaged one is buried instead (job_state.h).
 *   M5  A damaged entry counts as removed: its file is kept as .bad and waits neither for its job nor for compaction,
 *       as after a start. The job is in no file then.
 */
#ifndef BS_BODY_MEMORY_H
#define BS_BODY_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/types.h"
#include "binlog_files/scan.h"
#include "jobs/job.h"

/* An open file to read from; number 0: none. */
typedef struct {
    uint32_t number;
    int fd;
    int version;
} bs_body_file;

enum { BS_BODY_FILES = 16, BS_BODY_AHEAD = 32 * 1024 };

/* All zeros: bodies are not separate. */
typedef struct {
    uint64_t limit;         /* bytes; 0: none, and no body is separate */
    uint64_t used;          /* bytes of bodies that are in memory, also arriving ones */
    bs_counters *counters;
    bs_body *first;         /* loaded first */
    bs_body *last;
    const bs_job *needed;   /* the job whose body was needed last, which is not dropped */
    uint32_t ahead;         /* bytes to read behind the next needed entry; at first BS_BODY_AHEAD */
    bool failing;           /* a read has failed, which was logged */
    char *piece;            /* bytes read */
    size_t piece_capacity;
    bs_body_file files[BS_BODY_FILES]; /* by their numbers */
} bs_bodies;

void bs_bodies_free(bs_bodies *bodies);

/* Takes ownership of an open file and closes the previous one in its slot. */
void bs_bodies_set_file(bs_bodies *bodies, bs_body_file opened);

/* Closes a file that is no longer needed. */
void bs_bodies_close_file(bs_bodies *bodies, uint32_t number);

/* Returns the memory of a loaded body. */
uint64_t bs_body_bytes(uint32_t body_size);

/* Returns whether the job is near the head of its tube's ready jobs; false if its position is unknown. */
bool bs_body_is_near_head(const bs_job *job);

/* Drops bodies until at most `bytes` are used or none can be dropped. */
void bs_bodies_drop_to(bs_bodies *bodies, uint64_t bytes);

/* Creates a job with a loaded body of undefined content, which is not dropped before bs_body_arrived. NULL without
 * memory. */
bs_job *bs_bodies_new_job(bs_bodies *bodies, uint64_t id, uint32_t body_size, bool attributes);

/* Call it when a new job is in queue and binlog: allows dropping its body, and enforces the limit. */
void bs_body_arrived(bs_bodies *bodies, bs_job *job);

/* Frees the memory of a separate body whose job ends. */
void bs_body_release(bs_bodies *bodies, bs_job *job);

/* Drops a body, unless it could not be read again. */
void bs_body_drop(bs_bodies *bodies, bs_job *job);

/* Loads a dropped body from these bytes. Returns 0 or -ENOMEM. */
int bs_body_restore(bs_bodies *bodies, bs_job *job, const char *bytes);

/* Call it when recovery reads the full entry of a job with a separate body, at `scan->at`: loads the body if there is
 * space. Returns 0 or a negative errno. */
int bs_body_recovered(bs_bodies *bodies, bs_job *job, const bs_scan *scan, const bs_entry *entry);

#endif
