#include "binlog_files/entry_text.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/number.h"

enum { FIXED_PARTS_MAX = 1408, TIME_TEXT = 19 };
/* The name of a shard's folder takes ten more characters. */
enum { LOCATION_WIDTH = 24, SHARD_LOCATION_WIDTH = 34 };
enum { ID_WIDTH = 12, PRI_WIDTH = 10, SECONDS_WIDTH = 10, BYTES_WIDTH = 10 };

static const char *const STATES[] = {"deleted", "ready", "reserved", "buried", "delayed"};

#define PUT(at, text) (memcpy((at), (text), sizeof(text) - 1), (at) + sizeof(text) - 1)

static char *put_digits(char *at, uint64_t number, int count)
{
    for (int i = count; i-- > 0; number /= 10)
        at[i] = (char)('0' + number % 10);
    return at + count;
}

/* Writes seconds, with decimals only if needed. */
static char *put_seconds(char *at, int64_t nanoseconds)
{
    at = bs_write_number(at, (uint64_t)(nanoseconds / BS_SECOND));
    uint64_t rest = (uint64_t)(nanoseconds % BS_SECOND);
    if (rest == 0)
        return at;
    *at++ = '.';
    at = put_digits(at, rest, 9);
    while (at[-1] == '0')
        at--;
    return at;
}

/* Writes a wall time such as 2023-11-14T22:13:20.123456789Z. */
static char *put_time(bs_dump *dump, char *at, int64_t wall, int decimals)
{
    const time_t second = wall / BS_SECOND;
    uint64_t rest = (uint64_t)(wall % BS_SECOND);
    size_t slot = (size_t)second % BS_DUMP_TIMES;
    if (dump->times[slot].second != second + 1) {
        struct tm utc;
        (void)gmtime_r(&second, &utc);
        (void)strftime(dump->times[slot].text, sizeof dump->times[slot].text, "%Y-%m-%dT%H:%M:%S", &utc);
        dump->times[slot].second = second + 1;
    }
    at = bs_write_bytes(at, dump->times[slot].text, TIME_TEXT);
    *at++ = '.';
    for (int i = decimals; i < 9; i++)
        rest /= 10;
    at = put_digits(at, rest, decimals);
    *at++ = 'Z';
    return at;
}

static uint32_t body_bytes(const bs_entry *entry)
{
    return entry->body_size > 2 ? entry->body_size - 2 : 0;
}

static char *put_json_time(bs_dump *dump, char *at, int64_t wall)
{
    if (wall < 0)
        return PUT(at, "null");
    *at++ = '"';
    at = put_time(dump, at, wall, 9);
    *at++ = '"';
    return at;
}

/* Writes a hash as hexadecimal digits, null without a key. */
static char *put_key(char *at, const uint8_t key[BS_KEY_BYTES])
{
    static const uint8_t none[BS_KEY_BYTES];
    if (memcmp(key, none, BS_KEY_BYTES) == 0)
        return PUT(at, "null");
    *at++ = '"';
    for (size_t i = 0; i < BS_KEY_BYTES; i++) {
        *at++ = "0123456789abcdef"[key[i] >> 4];
        *at++ = "0123456789abcdef"[key[i] & 15];
    }
    *at++ = '"';
    return at;
}

static const char *kind_of(const bs_entry *entry)
{
    return entry->name ? "full" : entry->attributes.job ? "attribute" : "short";
}

int bs_dump_json(bs_dump *dump, const bs_dump_row *row)
{
    const bs_entry *entry = row->entry;
    size_t file_length = strlen(row->file);
    char *start = bs_bytes_reserve(&dump->out, FIXED_PARTS_MAX + file_length + row->tube_length);
    if (!start)
        return -ENOMEM;
    char *at = bs_write_bytes(PUT(start, "{\"file\":\""), row->file, file_length);
    at = bs_write_number(PUT(at, "\",\"offset\":"), row->offset);
    at = bs_write_number(PUT(at, ",\"bytes\":"), entry->size);
    at = bs_write_text(PUT(at, ",\"kind\":\""), kind_of(entry));
    at = bs_write_number(PUT(at, "\",\"id\":"), entry->id);
    if (row->tube) /* no character of a tube name needs escaping in JSON */
        at = PUT(bs_write_bytes(PUT(at, ",\"tube\":\""), row->tube, row->tube_length), "\"");
    else
        at = PUT(at, ",\"tube\":null");
    at = bs_write_text(PUT(at, ",\"state\":\""), STATES[entry->state]);
    at = bs_write_number(PUT(at, "\",\"pri\":"), entry->pri);
    at = put_seconds(PUT(at, ",\"delay_s\":"), entry->delay);
    at = put_seconds(PUT(at, ",\"ttr_s\":"), entry->ttr);
    at = bs_write_number(PUT(at, ",\"body_bytes\":"), body_bytes(entry));
    at = put_json_time(dump, PUT(at, ",\"created_at\":"), entry->created_at);
    at = put_json_time(dump, PUT(at, ",\"event_at\":"), bs_entry_event_at(entry));
    at = put_json_time(dump, PUT(at, ",\"deadline_at\":"), bs_entry_has_deadline(entry) ? entry->at : -1);
    at = put_json_time(dump, PUT(at, ",\"reserved_at\":"), bs_entry_reserved_at(entry));
    at = bs_write_number(PUT(at, ",\"reserves\":"), entry->reserves);
    at = bs_write_number(PUT(at, ",\"timeouts\":"), entry->timeouts);
    at = bs_write_number(PUT(at, ",\"releases\":"), entry->releases);
    at = bs_write_number(PUT(at, ",\"buries\":"), entry->buries);
    at = bs_write_number(PUT(at, ",\"kicks\":"), entry->kicks);
    if (entry->state == BS_INVALID)
        at = PUT(bs_write_text(PUT(at, ",\"ended\":\""), bs_ended_names[entry->ended]), "\"");
    else
        at = PUT(at, ",\"ended\":null");
    if (entry->length_of) {
        at = bs_write_number(PUT(at, ",\"length_of\":\"binlog."), entry->length_of);
        at = bs_write_number(PUT(at, "\",\"length\":"), entry->length);
    } else {
        at = PUT(at, ",\"length_of\":null,\"length\":null");
    }
    if (entry->attributes.job) {
        at = bs_write_number(PUT(at, ",\"attributes_of\":"), entry->attributes.job);
        at = bs_write_number(PUT(at, ",\"expires_s\":"), entry->attributes.values.expires);
        at = put_key(PUT(at, ",\"unique_key\":"), entry->attributes.values.key);
        at = bs_write_number(PUT(at, ",\"window_s\":"), entry->attributes.values.window);
    } else {
        at = PUT(at, ",\"attributes_of\":null,\"expires_s\":null,\"unique_key\":null,\"window_s\":null");
    }
    const int64_t until = entry->attributes.until ? (int64_t)entry->attributes.until * BS_SECOND : -1;
    at = put_json_time(dump, PUT(at, ",\"key_until\":"), until);
    /* C beanstalkd copied a foreign checksum from another entry. */
    const char *checksum = entry->sound ? "\"right\"" : entry->marked ? "\"foreign\"" : "null";
    at = PUT(bs_write_text(PUT(at, ",\"checksum\":"), checksum), "}\n");
    bs_bytes_extend(&dump->out, (size_t)(at - start));
    return 0;
}

/* Pads the text from `start` to a width, and adds two blanks. */
static char *pad(char *start, char *at, size_t width)
{
    size_t length = (size_t)(at - start);
    size_t blanks = length < width ? width - length + 2 : 2;
    memset(at, ' ', blanks);
    return at + blanks;
}

/* Like pad, with the blanks before the text. */
static char *pad_left(char *start, char *at, size_t width)
{
    size_t length = (size_t)(at - start);
    if (length < width) {
        memmove(start + width - length, start, length);
        memset(start, ' ', width - length);
        at = start + width;
    }
    return PUT(at, "  ");
}

/* Writes the tube, or what an entry of no job is about. */
static char *put_subject(char *at, const bs_dump_row *row)
{
    const bs_entry *entry = row->entry;
    if (entry->length_of) {
        at = bs_write_number(PUT(at, "- (binlog."), entry->length_of);
        return PUT(bs_write_number(PUT(at, " ends at "), entry->length), ")");
    }
    if (entry->attributes.job)
        return PUT(bs_write_number(entry->attributes.until ? PUT(at, "- (ended key of ") : PUT(at, "- (attributes of "),
                                   entry->attributes.job), ")");
    return row->tube ? bs_write_bytes(at, row->tube, row->tube_length) : PUT(at, "-");
}

int bs_dump_columns(bs_dump *dump, const bs_dump_row *row)
{
    const bs_entry *entry = row->entry;
    size_t file_length = strlen(row->file);
    char *start = bs_bytes_reserve(&dump->out, FIXED_PARTS_MAX + file_length + row->tube_length);
    if (!start)
        return -ENOMEM;
    int64_t event = bs_entry_event_at(entry);
    char *at = bs_write_bytes(start, row->file, file_length);
    *at++ = ':';
    const size_t width = memchr(row->file, '/', file_length) ? SHARD_LOCATION_WIDTH : LOCATION_WIDTH;
    char *field = at = pad(start, bs_write_number(at, row->offset), width);
    field = at = entry->name ? PUT(at, "full   ") : PUT(at, "short  ");
    field = at = pad_left(field, bs_write_number(at, entry->id), ID_WIDTH);
    field = at = pad(field, bs_write_text(at, STATES[entry->state]), 8);
    field = at = pad(field, event < 0 ? PUT(at, "-") : put_time(dump, at, event, 3), TIME_TEXT + 5);
    field = at = pad_left(field, bs_write_number(at, entry->pri), PRI_WIDTH);
    field = at = pad_left(field, put_seconds(at, entry->delay), SECONDS_WIDTH);
    field = at = pad_left(field, put_seconds(at, entry->ttr), SECONDS_WIDTH);
    field = at = pad_left(field, bs_write_number(at, body_bytes(entry)), BYTES_WIDTH);
    at = pad(field, bs_write_text(at, entry->sound ? "right" : entry->marked ? "foreign" : "-"), 8);
    at = put_subject(at, row);
    *at++ = '\n';
    bs_bytes_extend(&dump->out, (size_t)(at - start));
    return 0;
}
