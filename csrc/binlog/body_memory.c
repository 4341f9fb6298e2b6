#include "binlog/body_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/file_io.h"
#include "jobs/tube.h"

enum {
    NEAR = 8192, /* jobs */
    PASSED_OVER_MAX = 16 /* bodies near a head, before one of them is dropped, too */
};

uint64_t bs_body_bytes(uint32_t body_size)
{
    enum { HEADER = 8, UNIT = 16 }; /* of malloc */
    return (sizeof(bs_body) + (uint64_t)body_size + HEADER + UNIT - 1) / UNIT * UNIT;
}

static void add_used(bs_bodies *bodies, uint64_t bytes)
{
    bodies->used += bytes;
    bodies->counters->job_bytes += bytes;
    bodies->counters->body_bytes = bodies->used;
}

/* Allocates the body of a job, outside of the list. NULL without memory. */
static bs_body *allocate(bs_bodies *bodies, bs_job *job)
{
    bs_body *body = malloc(sizeof *body + job->body_size);
    if (!body)
        return NULL;
    *body = (bs_body){0};
    bs_job_body_place(job)->loaded = body;
    add_used(bodies, bs_body_bytes(job->body_size));
    return body;
}

static void append(bs_bodies *bodies, bs_body *body)
{
    body->previous = bodies->last;
    body->next = NULL;
    *(bodies->last ? &bodies->last->next : &bodies->first) = body;
    bodies->last = body;
}

static void unlink_body(bs_bodies *bodies, const bs_body *body)
{
    *(body->previous ? &body->previous->next : &bodies->first) = body->next;
    *(body->next ? &body->next->previous : &bodies->last) = body->previous;
}

/* Enters a body that may be dropped. Without an offset it could not be read again, so it stays. */
static void enter(bs_bodies *bodies, bs_job *job)
{
    const bs_body_place *place = bs_job_body_place(job);
    if (place->offset == BS_NO_OFFSET)
        return;
    place->loaded->job = job;
    append(bodies, place->loaded);
}

bs_job *bs_bodies_new_job(bs_bodies *bodies, uint64_t id, uint32_t body_size, bool attributes)
{
    bs_job *job = bs_job_new(id, body_size, true, attributes);
    if (!job || allocate(bodies, job))
        return job;
    bs_job_free(job);
    return NULL;
}

static void leave_list(bs_bodies *bodies, bs_body *body)
{
    if (body->job)
        unlink_body(bodies, body);
    body->job = NULL;
}

void bs_body_release(bs_bodies *bodies, bs_job *job)
{
    bs_body_place *place = bs_job_body_place(job);
    if (!place->loaded)
        return;
    leave_list(bodies, place->loaded);
    if (bodies->needed == job)
        bodies->needed = NULL;
    free(place->loaded);
    place->loaded = NULL;
    add_used(bodies, -bs_body_bytes(job->body_size));
}

void bs_body_drop(bs_bodies *bodies, bs_job *job)
{
    const bs_body_place *place = bs_job_body_place(job);
    if (place->loaded && place->offset == BS_NO_OFFSET)
        leave_list(bodies, place->loaded);
    else
        bs_body_release(bodies, job);
}

bool bs_body_is_near_head(const bs_job *job)
{
    return job->state == BS_READY && job->in_run && job->place - job->tube->ready.head < NEAR;
}

/* Drops the body that was loaded first, but passes over some near a head. Returns false if none can be dropped. */
static bool drop_one(bs_bodies *bodies)
{
    for (int passed_over = 0; bodies->first; passed_over++) {
        bs_body *body = bodies->first;
        if (body->job == bodies->needed && body == bodies->last)
            return false;
        if (body->job != bodies->needed && (passed_over >= PASSED_OVER_MAX || !bs_body_is_near_head(body->job))) {
            bs_body_drop(bodies, body->job);
            return true;
        }
        unlink_body(bodies, body);
        append(bodies, body);
    }
    return false;
}

void bs_bodies_drop_to(bs_bodies *bodies, uint64_t bytes)
{
    while (bodies->used > bytes && drop_one(bodies))
        continue;
}

void bs_body_arrived(bs_bodies *bodies, bs_job *job)
{
    enter(bodies, job);
    if (bodies->used <= bodies->limit)
        return;
    const bool first = job->state == BS_READY && bs_ready_first(&job->tube->ready) == job;
    if (!first)
        bs_body_drop(bodies, job);
    bodies->needed = NULL;
    bs_bodies_drop_to(bodies, bodies->limit);
}

int bs_body_recovered(bs_bodies *bodies, bs_job *job, const bs_scan *scan, const bs_entry *entry)
{
    bs_body_place *place = bs_job_body_place(job);
    place->offset = scan->at < BS_NO_OFFSET ? (uint32_t)scan->at : BS_NO_OFFSET;
    /* The checksum of an unsound entry is that of the body, which a large entry does not have in memory. */
    const bool has_sum = entry->sound || entry->body;
    if (has_sum)
        place->sum = bs_entry_sum_full(entry);
    const bool space = bodies->used + bs_body_bytes(job->body_size) <= bodies->limit;
    bs_body *body = place->loaded;
    if (!body && has_sum && !space && place->offset != BS_NO_OFFSET)
        return 0;
    if (!body && !(body = allocate(bodies, job)))
        return -ENOMEM;
    int error = bs_scan_copy_body(scan, scan->at, entry, job->body_size, body->bytes);
    if (error)
        return error;
    if (!has_sum)
        place->sum = bs_crc32c(0, body->bytes, job->body_size);
    if (!body->job)
        enter(bodies, job);
    bs_bodies_drop_to(bodies, bodies->limit);
    return 0;
}

int bs_body_restore(bs_bodies *bodies, bs_job *job, const char *bytes)
{
    bs_body *body = allocate(bodies, job);
    if (!body)
        return -ENOMEM;
    memcpy(body->bytes, bytes, job->body_size);
    enter(bodies, job);
    return 0;
}

/* --- open files ------------------------------------------------------------------------------------------- */

static void close_file(bs_body_file *file)
{
    if (file->number)
        bs_close(file->fd);
    *file = (bs_body_file){0};
}

void bs_bodies_set_file(bs_bodies *bodies, bs_body_file opened)
{
    bs_body_file *file = &bodies->files[opened.number % BS_BODY_FILES];
    close_file(file);
    *file = opened;
}

void bs_bodies_close_file(bs_bodies *bodies, uint32_t number)
{
    bs_body_file *file = &bodies->files[number % BS_BODY_FILES];
    if (file->number == number)
        close_file(file);
}

void bs_bodies_free(bs_bodies *bodies)
{
    for (uint32_t i = 0; i < BS_BODY_FILES; i++)
        close_file(&bodies->files[i]);
    free(bodies->piece);
}
