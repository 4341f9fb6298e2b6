/* bs_reply_list_jobs. */

#include "commands/long_commands.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/number.h"
#include "server/replies.h"

/* A page has at most so many rows, and looks at so many ids, or slots of the table of jobs. */
enum { ROWS_MAX = 1000, LOOKUPS_MAX = 20000, ROW_BYTES = 384 };

typedef struct {
    const bs_queue *queue;
    const bs_tube *tube;
    const bs_command *command;
    uint32_t rows_max;
    bs_bytes text;
    bs_now now;
} job_page;

static bool is_listed(const job_page *page, const bs_job *job)
{
    return job->tube == page->tube && (page->command->state == 0 || job->state == page->command->state);
}

static char *write_field(char *out, const char *name, uint64_t value)
{
    return bs_write_number(bs_write_text(out, name), value);
}

static uint64_t seconds(int64_t ns)
{
    return ns > 0 ? (uint64_t)(ns / BS_SECOND) : 0;
}

/* Adds the fields of stats-job that differ between the jobs of a tube; returns false without memory. */
static bool add_row(job_page *page, const bs_job *job)
{
    char *start = bs_bytes_reserve(&page->text, ROW_BYTES);
    if (!start)
        return false;
    const bool timed = job->state == BS_RESERVED || job->state == BS_DELAYED;
    char *out = write_field(start, "\n- {id: ", job->id);
    out = bs_write_text(bs_write_text(out, ", state: "), bs_state_names[job->state]);
    out = write_field(out, ", pri: ", job->pri);
    out = write_field(out, ", age: ", seconds(page->now.wall - job->created_at));
    out = write_field(out, ", delay: ", job->delay);
    out = write_field(out, ", ttr: ", job->ttr);
    out = write_field(out, ", time-left: ", timed ? seconds(job->at - page->now.mono) : 0);
    out = write_field(out, ", reserves: ", job->reserves);
    out = write_field(out, ", timeouts: ", job->timeouts);
    out = write_field(out, ", releases: ", job->releases);
    out = write_field(out, ", buries: ", job->buries);
    out = write_field(out, ", kicks: ", job->kicks);
    out = write_field(out, ", bytes: ", job->body_size - 2);
    out = bs_write_text(out, "}");
    bs_bytes_extend(&page->text, (size_t)(out - start));
    return true;
}

/* Adds the rows; `next` is then the id after which the next page starts, 0 if there is no job beyond this page. Returns
 * false without memory. */
static bool probe_ids(job_page *page, uint64_t *next)
{
    enum { NEAR = 8, FAR = 32 };
    const bs_job_table *jobs = &page->queue->jobs;
    const uint64_t last = __atomic_load_n(&page->queue->shared->last_id, __ATOMIC_RELAXED);
    uint64_t id = page->command->after_id;
    uint32_t rows = 0;
    for (uint32_t probed = 0; probed < LOOKUPS_MAX && rows < page->rows_max && id < last; probed++) {
        bs_job_table_prefetch(jobs, id + FAR);
        bs_job_table_prefetch_job(jobs, id + NEAR);
        const bs_job *job = bs_job_table_find(jobs, ++id);
        if (!job || !is_listed(page, job))
            continue;
        if (!add_row(page, job))
            return false;
        rows++;
    }
    *next = id < last ? id : 0;
    return true;
}

static int compare_ids(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The same for a small table. On a server that has few jobs now and had many, probing ids would find few of them. */
static bool search_table(job_page *page, uint64_t *next)
{
    const bs_job_table *jobs = &page->queue->jobs;
    uint64_t *ids = malloc((jobs->count + 1) * sizeof *ids);
    if (!ids)
        return false;
    uint32_t count = 0;
    for (size_t slot = 0; slot < jobs->capacity; slot++) {
        const bs_job *job = jobs->slots[slot];
        if (job && job->id > page->command->after_id && is_listed(page, job))
            ids[count++] = job->id;
    }
    qsort(ids, count, sizeof *ids, compare_ids);
    bool added = true;
    uint32_t rows = count < page->rows_max ? count : page->rows_max;
    for (uint32_t row = 0; row < rows && added; row++)
        added = add_row(page, bs_job_table_find(jobs, ids[row]));
    *next = rows < count ? ids[rows - 1] : 0;
    free(ids);
    return added;
}

static bool write_page(job_page *page)
{
    uint64_t next = 0;
    bs_bytes *text = &page->text;
    if (bs_bytes_append(text, "---\njobs:", 9) != 0)
        return false;
    const size_t head = bs_bytes_length(text);
    const bool small = page->queue->jobs.capacity <= LOOKUPS_MAX;
    if (page->tube && !(small ? search_table(page, &next) : probe_ids(page, &next)))
        return false;
    char *start = bs_bytes_reserve(text, ROW_BYTES);
    if (!start)
        return false;
    char *out = bs_bytes_length(text) == head ? bs_write_text(start, " []") : start;
    out = bs_write_text(write_field(out, "\nnext: ", next), "\n");
    bs_bytes_extend(text, (size_t)(out - start));
    return true;
}

void bs_reply_list_jobs(bs_server *server, bs_session *session, const bs_command *command, bs_now now)
{
    const bs_queue *queue = &server->queue;
    job_page page = {
        .queue = queue,
        .tube = bs_tubes_find(&queue->tubes, command->name, command->name_length),
        .command = command,
        .rows_max = command->number < ROWS_MAX ? command->number : ROWS_MAX,
        .now = now,
    };
    const int error = write_page(&page) ? 0 : -ENOMEM;
    bs_reply_text(server, session, &page.text, error);
}
