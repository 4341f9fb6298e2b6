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
    bool version_2;
    bool separator; /* 0x02 is missing before the CRC property */
} parts;

static void take_parts(const char *item, const hs_limits *limits, parts *of)
{
    memcpy(&of->head, item, sizeof of->head);
    of->topic = item + HS_ITEM_HEAD;
    of->properties = of->topic + of->head.topic_length;
    of->body = of->properties + of->head.properties_length;
    of->properties_length = of->head.properties_length;
    of->separator = false;
    size_t crc = 0;
    if (limits->property_crc) {
        if (hs_ends_with_crc(of->properties, of->properties_length))
            of->properties_length -= HS_CRC_PROPERTY;
        of->separator = of->properties_length > 0 && of->properties[of->properties_length - 1] != 2;
        crc = HS_CRC_PROPERTY + (of->separator ? 1 : 0);
    }
    /* RocketMQ decides by characters but stores the length in bytes in one signed byte; this decides by bytes. */
    of->version_2 = of->head.topic_length > HS_V1_TOPIC_MAX;
    of->record_size = HS_RECORD_MIN + of->head.body_length + of->head.topic_length + of->properties_length + crc +
                      (of->version_2 ? 1 : 0) + hs_host_size(of->head.sys_flag, HS_FLAG_BORN_IPV6) - 8 +
                      hs_host_size(of->head.sys_flag, HS_FLAG_STORE_IPV6) - 8;
}

static bool is_folder_name(const char *topic, size_t length)
{
    if (length == 0 || length > HS_TOPIC_MAX || (length <= 2 && memcmp(topic, "..", length) == 0))
        return false;
    return !memchr(topic, '/', length) && !memchr(topic, 0, length) && hs_is_utf8(topic, length);
}

static int check_item(const char *item, size_t left, const hs_limits *limits)
{
    uint32_t size;
    if (left < HS_ITEM_HEAD)
        return HS_ERR_LAYOUT;
    memcpy(&size, item, sizeof size);
    if (size > left || size < HS_ITEM_HEAD || size % 8 != 0)
        return HS_ERR_LAYOUT;
    hs_item head;
    memcpy(&head, item, sizeof head);
    uint64_t used = (uint64_t)HS_ITEM_HEAD + head.topic_length + head.properties_length + head.body_length;
    if (used > size || size - used >= 8)
        return HS_ERR_LAYOUT;
    if (head.body_length > (uint64_t)limits->max_body || head.body_length > INT32_MAX / 2)
        return HS_ERR_BODY;
    if (head.queue_id < 0)
        return HS_ERR_QUEUE;
    if (head.sys_flag & HS_FLAG_INNER_BATCH)
        return HS_ERR_FLAG;
    parts of;
    take_parts(item, limits, &of);
    if (!is_folder_name(of.topic, head.topic_length))
        return HS_ERR_TOPIC;
    size_t crc = limits->property_crc ? HS_CRC_PROPERTY + (of.separator ? 1U : 0U) : 0U;
    if (of.properties_length + crc > HS_PROPERTIES_MAX || memchr(of.properties, 0, of.properties_length) ||
        !hs_is_utf8(of.properties, of.properties_length))
        return HS_ERR_PROPERTIES;
    return of.record_size + HS_BLANK > (uint64_t)limits->segment_bytes ? HS_ERR_SEGMENT : 0;
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

static void write_record(char *out, const parts *of, int64_t offset, int64_t queue_offset, int64_t store_timestamp,
                         bool property_crc)
{
    const hs_item *head = &of->head;
    hs_put32(out + HS_AT_SIZE, (int32_t)of->record_size);
    hs_put32(out + HS_AT_MAGIC, of->version_2 ? HS_MAGIC_V2 : HS_MAGIC_V1);
    hs_put32(out + HS_AT_BODY_CRC, (int32_t)(hs_crc32(0, of->body, head->body_length) & 0x7FFFFFFFU));
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
    at = bs_write_bytes(at + 16, of->body, head->body_length);
    if (of->version_2) {
        hs_put16(at, (int16_t)head->topic_length);
        at += 2;
    } else {
        *at++ = (char)head->topic_length;
    }
    at = bs_write_bytes(at, of->topic, head->topic_length);
    size_t crc = property_crc ? HS_CRC_PROPERTY + (of->separator ? 1U : 0U) : 0U;
    hs_put16(at, (int16_t)(of->properties_length + crc));
    at = bs_write_bytes(at + 2, of->properties, of->properties_length);
    if (of->separator)
        *at = 2;
    if (property_crc)
        hs_seal_record(out, of->record_size);
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
        parts of;
        take_parts(items + encoding->consumed, limits, &of);
        int64_t offset = encoding->offset + (int64_t)encoding->produced;
        int64_t space = encoding->segment_end - offset;
        size_t wanted = of.record_size;
        bool fits = (int64_t)wanted + HS_BLANK <= space;
        if (capacity - encoding->produced < (fits ? wanted : HS_BLANK)) {
            encoding->why = HS_ENCODED_OUTPUT_FULL;
            return 0;
        }
        if (!fits) {
            put_blank(out, encoding, space);
            return 0;
        }
        int64_t queue_offset = 0;
        if (hs_in_queue(of.head.sys_flag)) {
            int32_t number = hs_queues_get(queues, of.topic, of.head.topic_length, of.head.queue_id, 0);
            if (number < 0)
                return number;
            queue_offset = hs_queues_take(queues, number);
        }
        int64_t at = of.head.store_timestamp;
        if (at == 0)
            at = encoding->now > encoding->store_timestamp ? encoding->now : encoding->store_timestamp;
        if (at > encoding->store_timestamp)
            encoding->store_timestamp = at;
        write_record(out + encoding->produced, &of, offset, queue_offset, at, limits->property_crc != 0);
        if (offsets) {
            *offsets++ = offset;
            *offsets++ = queue_offset;
        }
        encoding->last_offset = offset;
        encoding->produced += wanted;
        encoding->consumed += of.head.size;
        encoding->count++;
    }
    return 0;
}
