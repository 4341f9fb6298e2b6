/* Resharding: the jobs of whole binlog folders written to new folders, one folder per shard. */
#ifndef BS_API_TRANSFER_H
#define BS_API_TRANSFER_H

#include "api/server.h"

/* cdef begin */

/* Needs no session and no queue. */
typedef struct bs_transfer bs_transfer;

/* As bs_core_recover, but starts no file, so that the folder does not change. Such a core keeps the folder's lock and
 * its jobs until it is freed, and allows bs_core_damaged and bs_transfer_add only. */
int bs_core_read(bs_core *core, bs_now now);

/* Returns the number of the index-th file with unreadable entries; 0 after the last one. */
uint32_t bs_core_damaged(const bs_core *core, uint32_t index);

/* `folders` are `shards` empty folders; the strings stay the caller's. Files are numbered from `after` + 1 in each.
 * `file_size` is bytes; only a file with a single larger job exceeds it. 0 or a negative errno; after 0 the caller owns
 * *created. */
int bs_transfer_new(const char *const *folders, uint32_t shards, uint32_t after, const char *colocate,
                    int64_t file_size, bs_transfer **created);

/* Adds the jobs of a core that has read its folder and must outlive the transfer. 0 or -ENOMEM. */
int bs_transfer_add(bs_transfer *transfer, const bs_core *from);

/* Sorts the jobs after the last bs_transfer_add, and records `last_id` in every folder. `now` is that of bs_core_read.
 * Of jobs with the same id, all but one get new ids above last_id. Returns the number of jobs or a negative errno. */
int64_t bs_transfer_start(bs_transfer *transfer, uint64_t last_id, bs_now now);

/* Writes jobs of at least `bytes` in total. Returns how many are left, or a negative errno. */
int64_t bs_transfer_write(bs_transfer *transfer, int64_t bytes);

/* Syncs and closes the files, not the folders. Returns how many jobs have new ids, or a negative errno. */
int64_t bs_transfer_finish(bs_transfer *transfer);

/* Also closes open files. NULL is ignored. */
void bs_transfer_free(bs_transfer *transfer);

/* cdef end */

struct bs_job;
struct bs_job_table;
struct bs_ended_keys;

/* The jobs of one folder. `load_body` makes sure that a body is in memory until its next call. */
typedef struct {
    const struct bs_job_table *jobs;
    const struct bs_ended_keys *ended_keys;
    int (*load_body)(void *context, struct bs_job *job);
    void *context;
} bs_transfer_source;

/* Like bs_transfer_add; the table must outlive the transfer. Sets `shard` of the tubes to the source's number. */
int bs_transfer_add_source(bs_transfer *transfer, const bs_transfer_source *source);

#endif
