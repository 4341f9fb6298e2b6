/* Writes the jobs of whole folders as new folders; the interface is in api/transfer.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/transfer.h"
#include "binlog_files/entry.h"
#include "binlog_files/file_writer.h"
#include "jobs/job.h"
#include "jobs/tube.h"
#include "jobs/unique_keys.h"

struct bs_transfer {
    bs_file_writer *shards;
    uint32_t shard_count;
    char *colocate;
    bs_transfer_source sources[BS_MAX_WORKERS];
    uint32_t source_count;
    bs_job **jobs; /* not owned; in writing order once started */
    size_t job_count;
    size_t next;
    int64_t renumbered;
    bs_now now;
};

static int write_job(bs_transfer *transfer, bs_job *job)
{
    const bs_tube *tube = job->tube;
    const bs_transfer_source *source = &transfer->sources[tube->shard];
    uint32_t owner = bs_shard_of(tube->name, tube->name_length, transfer->shard_count, transfer->colocate);
    bs_file_writer *to = &transfer->shards[owner];
    int error = source->load_body(source->context, job);
    if (error)
        return error;
    char *space = bs_file_writer_reserve(to, bs_entry_put_size(job), &error);
    if (!space)
        return error;
    int64_t at = job->at;
    if (job->state == BS_DELAYED)
        at = bs_entry_deadline(job->at - transfer->now.mono, transfer->now.wall);
    if (job->has_attributes) {
        const size_t size = bs_entry_encode_attributes_of(space, to->unused_id, job, to->wall, to->number);
        bs_bytes_extend(&to->buffer, size);
        space += size;
    }
    bs_bytes_extend(&to->buffer, bs_entry_encode(space, job, (uint8_t)job->state, at, true, 0, to->number));
    return 0;
}

/* Gives new ids to jobs with duplicate ids, which result from two servers on parts of one folder. */
static uint64_t renumber(bs_transfer *transfer, uint64_t last_id)
{
    uint64_t previous = 0;
    for (size_t i = 0; i < transfer->job_count; i++) {
        bs_job *job = transfer->jobs[i];
        if (job->id == previous) {
            job->id = ++last_id;
            transfer->renumbered++;
        } else {
            previous = job->id;
        }
    }
    return last_id;
}

/* For qsort: by id, then the buried ones by time of burying, from which C beanstalkd restores their order. */
static int compare_buried_last(const void *a, const void *b)
{
    const bool buried = (*(bs_job *const *)a)->state == BS_BURIED;
    if (buried != ((*(bs_job *const *)b)->state == BS_BURIED))
        return buried ? 1 : -1;
    return buried ? bs_job_compare_buried(a, b) : bs_job_compare_ids(a, b);
}

int bs_transfer_new(const char *const *folders, uint32_t shards, uint32_t after, const char *colocate,
                    int64_t file_size, bs_transfer **created)
{
    bs_transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer)
        return -ENOMEM;
    transfer->shards = calloc(shards, sizeof *transfer->shards);
    transfer->colocate = colocate ? strdup(colocate) : NULL;
    transfer->shard_count = transfer->shards ? shards : 0;
    for (uint32_t i = 0; i < transfer->shard_count; i++)
        transfer->shards[i].dir_fd = transfer->shards[i].fd = -1;
    int error = transfer->shards && (!colocate || transfer->colocate) ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < transfer->shard_count && !error; i++)
        error = bs_file_writer_init(&transfer->shards[i], folders[i], after, "", file_size);
    if (error) {
        bs_transfer_free(transfer);
        return error;
    }
    *created = transfer;
    return 0;
}

int bs_transfer_add_source(bs_transfer *transfer, const bs_transfer_source *source)
{
    const bs_job_table *table = source->jobs;
    if (transfer->source_count == BS_MAX_WORKERS)
        return -ENOMEM;
    bs_job **grown = realloc(transfer->jobs, (transfer->job_count + table->count + 1) * sizeof *grown);
    if (!grown)
        return -ENOMEM;
    transfer->jobs = grown;
    for (size_t i = 0; i < table->capacity; i++) {
        bs_job *job = table->slots[i];
        if (!job)
            continue;
        job->tube->shard = transfer->source_count;
        transfer->jobs[transfer->job_count++] = job;
    }
    transfer->sources[transfer->source_count++] = *source;
    return 0;
}

static int write_key(bs_file_writer *to, const bs_ended_key *ended)
{
    int error;
    bs_entry_attributes content = {.job = ended->job, .until = ended->until};
    memcpy(content.values.key, ended->key, BS_KEY_BYTES);
    char *space = bs_file_writer_reserve(to, BS_ENTRY_SHORT, &error);
    if (space)
        bs_bytes_extend(&to->buffer, bs_entry_encode_attributes(space, to->unused_id, &content, to->wall, to->number));
    return error;
}

/* Writes the ended keys to every folder, because a key does not show its tube. */
static int write_keys(bs_transfer *transfer)
{
    int error = 0;
    for (uint32_t source = 0; source < transfer->source_count; source++) {
        const bs_heap *keys = &transfer->sources[source].ended_keys->by_time;
        for (uint32_t i = 0; i < keys->count; i++)
            for (uint32_t shard = 0; shard < transfer->shard_count && !error; shard++)
                error = write_key(&transfer->shards[shard], keys->slots[i].item);
    }
    return error;
}

int64_t bs_transfer_start(bs_transfer *transfer, uint64_t last_id, bs_now now)
{
    transfer->now = now;
    if (transfer->job_count > 0)
        qsort(transfer->jobs, transfer->job_count, sizeof *transfer->jobs, bs_job_compare_ids);
    last_id = renumber(transfer, last_id);
    for (uint32_t i = 0; i < transfer->shard_count; i++) {
        transfer->shards[i].unused_id = last_id + 1;
        transfer->shards[i].wall = now.wall;
    }
    if (transfer->job_count > 0)
        qsort(transfer->jobs, transfer->job_count, sizeof *transfer->jobs, compare_buried_last);
    int error = 0;
    for (uint32_t i = 0; i < transfer->shard_count && last_id > 0 && !error; i++) /* no entry of a job comes before */
        error = bs_file_writer_append_last_id(&transfer->shards[i], last_id);
    if (!error)
        error = write_keys(transfer);
    return error ? error : (int64_t)transfer->job_count;
}

int64_t bs_transfer_write(bs_transfer *transfer, int64_t bytes)
{
    while (bytes > 0 && transfer->next < transfer->job_count) {
        bs_job *job = transfer->jobs[transfer->next];
        int error = write_job(transfer, job);
        if (error)
            return error;
        transfer->next++;
        bytes -= (int64_t)bs_entry_put_size(job);
    }
    return (int64_t)(transfer->job_count - transfer->next);
}

int64_t bs_transfer_finish(bs_transfer *transfer)
{
    int error = 0;
    for (uint32_t i = 0; i < transfer->shard_count && !error; i++)
        error = bs_file_writer_finish(&transfer->shards[i]);
    return error ? error : transfer->renumbered;
}

void bs_transfer_free(bs_transfer *transfer)
{
    if (!transfer)
        return;
    for (uint32_t i = 0; i < transfer->shard_count; i++)
        bs_file_writer_free(&transfer->shards[i]);
    free(transfer->shards);
    free(transfer->colocate);
    free(transfer->jobs);
    free(transfer);
}
