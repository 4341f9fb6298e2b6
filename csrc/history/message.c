#include "history/message.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "store/store.h"

enum { NAME_END = 1, PAIR_END = 2, PROPERTIES_BESIDES = 1024, ALIGNMENT = 8 };

static char *begin_property(char *out, const char *name)
{
    size_t length = strlen(name);
    memcpy(out, name, length);
    out[length] = NAME_END;
    return out + length + 1;
}

static char *end_property(char *out)
{
    *out = PAIR_END;
    return out + 1;
}

static char *text_property(char *out, const char *name, const char *text, size_t length)
{
    out = begin_property(out, name);
    memcpy(out, text, length);
    return end_property(out + length);
}

static char *number_property(char *out, const char *name, uint64_t number)
{
    return end_property(bs_write_number(begin_property(out, name), number));
}

static char *unique_property(char *out, const bs_message *message)
{
    out = begin_property(out, "UNIQ_KEY");
    size_t length = strlen(message->key);
    memcpy(out, message->key, length);
    out += length;
    *out++ = '-';
    out = bs_write_number(out, message->file);
    *out++ = '-';
    return end_property(bs_write_number(out, message->offset));
}

static char *write_properties(char *out, const bs_message *message)
{
    const bs_entry *last = message->last;
    const char *how = message->truncated ? "truncated" : "deleted";
    out = text_property(out, "TUBE", message->tube->name, message->tube->length);
    out = number_property(out, "KEYS", last->id);
    out = text_property(out, "TAGS", how, strlen(how));
    out = unique_property(out, message);
    out = number_property(out, "pri", last->pri);
    out = number_property(out, "delay", bs_seconds(last->delay));
    out = number_property(out, "ttr", bs_seconds(last->ttr));
    out = number_property(out, "reserves", last->reserves);
    out = number_property(out, "timeouts", last->timeouts);
    out = number_property(out, "releases", last->releases);
    out = number_property(out, "buries", last->buries);
    out = number_property(out, "kicks", last->kicks);
    out = bs_timeline_write(begin_property(out, "timeline"), message->timeline, message->limits);
    out = end_property(out);
    return message->without_body ? number_property(out, "body-bytes", message->body_size) : out;
}

static uint32_t body_length(const bs_message *message)
{
    return message->without_body ? 0 : message->body_size;
}

int bs_message_reserve(bs_bytes *items, const bs_message *message)
{
    const uint32_t kept = message->limits->head + message->limits->tail;
    const uint32_t count = message->timeline->count;
    const size_t events = (count < kept ? count : kept) + (size_t)4;
    const size_t most = events * BS_TIMELINE_TEXT_MAX + HS_ITEM_HEAD + message->tube->topic_length +
                        PROPERTIES_BESIDES + body_length(message) + ALIGNMENT;
    return bs_bytes_reserve(items, most) ? 0 : -ENOMEM;
}

char *bs_message_append(bs_bytes *items, const bs_message *message)
{
    char *item = items->memory + items->end;
    char *topic = item + HS_ITEM_HEAD;
    char *properties = topic + message->tube->topic_length;
    memcpy(topic, message->tube->topic, message->tube->topic_length);
    char *end = write_properties(properties, message);
    const size_t properties_length = (size_t)(end - properties);
    const size_t length = (size_t)(end - item) + body_length(message);
    const size_t padding = -length % ALIGNMENT;
    memset(item + length, 0, padding);
    const uint32_t reserves = message->last->reserves;
    const hs_item head = {
        .size = (uint32_t)(length + padding),
        .born_timestamp = message->timeline->created_at / BS_MILLISECOND,
        .reconsume_times = reserves > (uint32_t)INT32_MAX ? INT32_MAX : reserves ? (int32_t)reserves - 1 : 0,
        .body_length = body_length(message),
        .topic_length = message->tube->topic_length,
        .properties_length = (uint16_t)properties_length,
        .born_ip = {127, 0, 0, 1},
        .store_ip = {127, 0, 0, 1},
    };
    memcpy(item, &head, sizeof head);
    bs_bytes_extend(items, length + padding);
    return end;
}
