/* bs_core_tube_stats: writes the statistics of tubes without changing them. */

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "queue/tube_refs.h"
#include "runtime/core_state.h"

enum { NUMBERS = 15, NUMBER_BYTES_MAX = 9 };

/* First bytes of msgpack values. */
enum { ARRAY16 = 0xdc, BIN8 = 0xc4, NIL = 0xc0, UINT8 = 0xcc, FIXINT_END = 0x80 };

static_assert(5 + BS_TUBE_NAME_MAX + NUMBERS * NUMBER_BYTES_MAX <= BS_TUBE_STATS_MAX, "a tube fits");

static char *write_big_endian(char *out, uint64_t value, size_t count)
{
    for (size_t i = count; i-- > 0; value >>= 8)
        out[i] = (char)(unsigned char)value;
    return out + count;
}

/* Writes a number in as few bytes as possible. */
static char *write_msgpack_number(char *out, uint64_t value)
{
    if (value < FIXINT_END)
        return write_big_endian(out, value, 1);
    const unsigned power = value <= UINT8_MAX ? 0 : value <= UINT16_MAX ? 1 : value <= UINT32_MAX ? 2 : 3;
    return write_big_endian(write_big_endian(out, UINT8 + power, 1), value, (size_t)1 << power);
}

/* Nanoseconds since the first job became ready, or since its first delay ended if that is earlier: releasing a job does
 * not reset its age. */
static int64_t age_of(const bs_job *job, bs_now now)
{
    int64_t since;
    if (__builtin_add_overflow(job->created_at, (int64_t)job->delay * BS_SECOND, &since) || job->at < since)
        since = job->at;
    return now.wall > since ? now.wall - since : 0;
}

static char *write_tube(char *out, const bs_queue *queue, const bs_tube *tube, bs_now now)
{
    uint64_t unrouted = bs_refs_unrouted(queue, tube);
    const bs_job *first = bs_ready_first(&tube->ready);
    const uint64_t numbers[NUMBERS - 1] = {
        tube->urgent,
        bs_ready_count(&tube->ready),
        tube->reserved,
        tube->delayed.count,
        tube->buried.count,
        tube->total_jobs,
        tube->users + unrouted,
        tube->watchers + unrouted,
        tube->waiters,
        (uint64_t)tube->pause_ns / BS_MILLISECOND,
        (uint64_t)bs_tube_pause_left(tube, now.mono) / BS_MILLISECOND,
        tube->deletes,
        tube->pauses,
        tube->reserves,
    };
    out = write_big_endian(write_big_endian(out, ARRAY16, 1), NUMBERS + 1, 2);
    out = write_big_endian(write_big_endian(out, BIN8, 1), tube->name_length, 1);
    memcpy(out, tube->name, tube->name_length);
    out += tube->name_length;
    for (size_t i = 0; i < NUMBERS - 1; i++)
        out = write_msgpack_number(out, numbers[i]);
    return first ? write_msgpack_number(out, (uint64_t)age_of(first, now) / BS_MILLISECOND)
                 : write_big_endian(out, NIL, 1);
}

size_t bs_core_tube_stats(const bs_core *core, int64_t *first, char *buffer, size_t capacity, bs_now now)
{
    const bs_queue *queue = &core->server.queue;
    const bs_tubes *tubes = &queue->tubes;
    char *out = buffer;
    int64_t slot = *first < 0 ? tubes->slot_count : *first;
    for (; slot < tubes->slot_count && capacity - (size_t)(out - buffer) >= BS_TUBE_STATS_MAX; slot++)
        if (tubes->slots[slot])
            out = write_tube(out, queue, tubes->slots[slot], now);
    *first = slot < tubes->slot_count ? slot : -1;
    return (size_t)(out - buffer);
}
