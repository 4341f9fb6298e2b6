/* Checks items and encodes them as records. */
#include <stdbool.h>
#include <string.h>

#include "base/number.h"
#include "store/order.h"
#include "store/queues.h"
#include "store/record.h"
#include "store/store.h"
#include "store/text.h"

_Static_assert(sizeof(hs_item) == HS_ITEM_HEAD, "items have no hidden padding");

/* The parts of an item, and the layout of its record. */
typedef struct {
    hs_item head;
    const char *topic;
    const char *properties;
    const char *body;
    size_t properties_length; /* without an old CRC property */
    size_t record_size;
    size_t crc_length; /* of the CRC property, with the separator; 0: none */
    bool version_2;
    bool separator; /* 0x02 is missing before the CRC property */
} item_parts;

static void split_item(const char *item, const hs_limits *limits, item_parts *parts)
{
    memcpy(&parts->head, item, sizeof parts->head);
    parts->topic = item + HS_ITEM_HEAD;
    parts->properties = parts->topic + parts->head.topic_length;
    parts->body = parts->properties + parts->head.properties_length;
    parts->properties_length = parts->head.properties_length;
    parts->separator = false;
    parts->crc_length = 0;
    if (limits->property_crc) {
        if (hs_ends_with_crc(parts->properties, parts->properties_length))
            parts->properties_length -= HS_CRC_PROPERTY;
        parts->separator = parts->properties_length > 0 && parts->properties[parts->properties_length - 1] != 2;
        parts->crc_length = HS_CRC_PROPERTY + (parts->separator ? 1 : 0);
    }
    /* RocketMQ decides by characters but stores the length in bytes in one signed byte; this decides by bytes. */
    parts->version_2 = parts->head.topic_length > HS_V1_TOPIC_MAX;
    parts->record_size = HS_RECORD_MIN + parts->head.body_length + parts->head.topic_length +
                         parts->properties_length + parts->crc_length + (parts->version_2 ? 1 : 0) +
                         hs_host_size(parts->head.sys_flag, HS_FLAG_BORN_IPV6) - 8 +
                         hs_host_size(parts->head.sys_flag, HS_FLAG_STORE_IPV6) - 8;
}

static bool is_folder_name(const char *topic, size_t length)
{
    if (length == 0 || length > HS_TOPIC_MAX || (length <= 2 && memcmp(topic, "..", length) == 0))
        return false;
    return !memchr(topic, '/', length) && !memchr(topic, 0, length) && hs_is_utf8(topic, length);
}

static int check_item(const char *item, size_t left, const hs_limits *limits)
{
    hs_item head;
    if (left < HS_ITEM_HEAD)
        return HS_ERR_LAYOUT;
    memcpy(&head, item, sizeof head);
    if (head.size > left || head.size < HS_ITEM_HEAD || head.size % 8 != 0)
        return HS_ERR_LAYOUT;
    uint64_t used = (uint64_t)HS_ITEM_HEAD + head.topic_length + head.properties_length + head.body_length;
    if (used > head.size || head.size - used >= 8)
        return HS_ERR_LAYOUT;
    if (head.body_length > (uint64_t)limits->max_body || head.body_length > INT32_MAX / 2)
        return HS_ERR_BODY;
    if (head.queue_id < 0)
        return HS_ERR_QUEUE;
    if (head.sys_flag & HS_FLAG_INNER_BATCH)
        return HS_ERR_FLAG;
    item_parts parts;
    split_item(item, limits, &parts);
    if (!is_folder_name(parts.topic, head.topic_length))
        return HS_ERR_TOPIC;
    if (parts.properties_length + parts.crc_length > HS_PROPERTIES_MAX ||
        memchr(parts.properties, 0, parts.properties_length) ||
        !hs_is_utf8(parts.properties, parts.properties_length))
        return HS_ERR_PROPERTIES;
    return parts.record_size + HS_BLANK > (uint64_t)limits->segment_bytes ? HS_ERR_SEGMENT : 0;
}

int64_t hs_items_check(const char *items, size_t length, const hs_limits *limits, int64_t *fault_at)
{
    int64_t count = 0;
    for (size_t at = 0; at < length; count++) {
        int error = check_item(items + at, length - at, limits);
        if (error) {
            *fault_at = count;
            return error;
        }
        uint32_t size;
        memcpy(&size, items + at, sizeof size);
        at += size;
    }
    return count;
}

static char *put_host(char *out, const uint8_t *ip, int32_t port, uint32_t size)
{
    memcpy(out, ip, size - 4);
    hs_put32(out + size - 4, port);
    return out + size;
}

static void write_record(char *out, const item_parts *parts, int64_t offset, int64_t queue_offset,
                         int64_t store_timestamp)
{
    const hs_item *head = &parts->head;
    hs_put32(out + HS_AT_SIZE, (int32_t)parts->record_size);
    hs_put32(out + HS_AT_MAGIC, parts->version_2 ? HS_MAGIC_V2 : HS_MAGIC_V1);
    hs_put32(out + HS_AT_BODY_CRC, (int32_t)(hs_crc32(0, parts->body, head->body_length) & 0x7FFFFFFFU));
    hs_put32(out + HS_AT_QUEUE_ID, head->queue_id);
    hs_put32(out + HS_AT_FLAG, head->flag);
    hs_put64(out + HS_AT_QUEUE_OFFSET, queue_offset);
    hs_put64(out + HS_AT_OFFSET, offset);
    hs_put32(out + HS_AT_SYS_FLAG, head->sys_flag);
    hs_put64(out + HS_AT_BORN, head->born_timestamp);
    char *at = put_host(out + HS_AT_BORN_HOST, head->born_ip, head->born_port,
                        hs_host_size(head->sys_flag, HS_FLAG_BORN_IPV6));
    hs_put64(at, store_timestamp);
    at = put_host(at + 8, head->store_ip, head->store_port, hs_host_size(head->sys_flag, HS_FLAG_STORE_IPV6));
    hs_put32(at, head->reconsume_times);
    hs_put64(at + 4, head->prepared_offset);
    hs_put32(at + 12, (int32_t)head->body_length);
    at = bs_write_bytes(at + 16, parts->body, head->body_length);
    if (parts->version_2) {
        hs_put16(at, (int16_t)head->topic_length);
        at += 2;
    } else {
        *at++ = (char)head->topic_length;
    }
    at = bs_write_bytes(at, parts->topic, head->topic_length);
    hs_put16(at, (int16_t)(parts->properties_length + parts->crc_length));
    at = bs_write_bytes(at + 2, parts->properties, parts->properties_length);
    if (parts->separator)
        *at = 2;
    if (parts->crc_length > 0)
        hs_seal_record(out, parts->record_size);
}

/* Writes the first 8 bytes of the rest of the segment. */
static void put_blank(char *out, hs_encoding *encoding, int64_t space)
{
    hs_put32(out + encoding->produced, (int32_t)space);
    hs_put32(out + encoding->produced + 4, HS_MAGIC_BLANK);
    encoding->produced += HS_BLANK;
    encoding->why = HS_ENCODED_SEGMENT_FULL;
}

int hs_encode(hs_queues *queues, const hs_limits *limits, const char *items, size_t length, char *out,
              size_t capacity, int64_t *offsets, hs_encoding *encoding)
{
    encoding->consumed = 0;
    encoding->produced = 0;
    encoding->count = 0;
    encoding->why = HS_ENCODED_ALL;
    while (encoding->consumed < length) {
        item_parts parts;
        split_item(items + encoding->consumed, limits, &parts);
        int64_t offset = encoding->offset + (int64_t)encoding->produced;
        int64_t space = encoding->segment_end - offset;
        bool fits = (int64_t)parts.record_size + HS_BLANK <= space;
        if (capacity - encoding->produced < (fits ? parts.record_size : HS_BLANK)) {
            encoding->why = HS_ENCODED_OUTPUT_FULL;
            return 0;
        }
        if (!fits) {
            put_blank(out, encoding, space);
            return 0;
        }
        int64_t queue_offset = 0;
        if (hs_in_queue(parts.head.sys_flag)) {
            int32_t number = hs_queues_get(queues, parts.topic, parts.head.topic_length, parts.head.queue_id, 0);
            if (number < 0)
                return number;
            queue_offset = hs_queues_take(queues, number);
        }
        int64_t at = parts.head.store_timestamp;
        if (at == 0)
            at = encoding->now > encoding->store_timestamp ? encoding->now : encoding->store_timestamp;
        if (at > encoding->store_timestamp)
            encoding->store_timestamp = at;
        write_record(out + encoding->produced, &parts, offset, queue_offset, at);
        if (offsets) {
            *offsets++ = offset;
            *offsets++ = queue_offset;
        }
        encoding->last_offset = offset;
        encoding->produced += parts.record_size;
        encoding->consumed += parts.head.size;
        encoding->count++;
    }
    return 0;
}
