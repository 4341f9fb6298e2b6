/* Converts a file of the commit log to columns: the messages that store/record.c accepts. */
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>

#include "columns/columns.h"
#include "store/order.h"
#include "columns/put.h"
#include "store/record.h"
#include "store/text.h"

enum { HOST_MAX = INET6_ADDRSTRLEN + 16, TOPIC_MAX = 255, MICROSECONDS = 1000 };

static const char REPLACEMENT[] = "\xEF\xBF\xBD"; /* for invalid UTF-8 */

enum { GROWTH = sizeof REPLACEMENT - 1 }; /* bytes of text for a byte of invalid UTF-8 */

/* --- text --- */

static void put_utf8(bc_column *col, int64_t row, hs_slice text)
{
    if (hs_is_utf8(text.text, text.length)) {
        bc_put_text_at(col, row, text.text, text.length);
        return;
    }
    const char *end = text.text + text.length;
    for (const char *at = text.text; at < end;) {
        const char *start = at;
        bool good = hs_text_next(&at, end) >= 0;
        bc_put_text_at(col, row, good ? start : REPLACEMENT, good ? (size_t)(at - start) : sizeof REPLACEMENT - 1);
    }
    col->ends[row + 1] = (int32_t)col->used;
}

static void put_column_utf8(bc_batch *batch, int column, hs_slice text)
{
    bc_column *col = &batch->columns[column];
    if (!col->values)
        return;
    col->ends[batch->rows + 1] = (int32_t)col->used;
    if (!text.text)
        return;
    put_utf8(col, batch->rows, text);
    if (col->valid)
        bc_set_bit(col->valid, batch->rows);
}

/* --- properties --- */

/* Returns the last value of a property; NULL if it is missing. */
static hs_slice value_of(hs_slice properties, const char *wanted)
{
    hs_slice last = {NULL, 0};
    hs_slice name;
    hs_slice value;
    while (hs_next_property(&properties, &name, &value))
        if (hs_slice_is(name, wanted))
            last = value;
    return last;
}

static bool is_repeated(hs_slice rest, hs_slice wanted)
{
    hs_slice name;
    hs_slice value;
    while (hs_next_property(&rest, &name, &value))
        if (name.length == wanted.length && memcmp(name.text, wanted.text, name.length) == 0)
            return true;
    return false;
}

static void put_properties(bc_batch *batch, hs_slice rest)
{
    bc_column *list = &batch->columns[BC_LOG_PROPERTIES];
    if (!list->ends)
        return;
    hs_slice name;
    hs_slice value;
    while (hs_next_property(&rest, &name, &value)) {
        if (is_repeated(rest, name))
            continue; /* a map has each name once */
        put_utf8(&batch->columns[BC_LOG_PROPERTY_NAME], list->used, name);
        put_utf8(&batch->columns[BC_LOG_PROPERTY_VALUE], list->used, value);
        list->used++;
    }
    list->ends[batch->rows + 1] = (int32_t)list->used;
}

static void put_key(bc_batch *batch, hs_slice key)
{
    bc_column *list = &batch->columns[BC_LOG_KEYS];
    put_utf8(&batch->columns[BC_LOG_KEY_TEXT], list->used, key);
    list->used++;
}

/* Adds the index keys: UNIQ_KEY first, then the words of KEYS. */
static void put_keys(bc_batch *batch, hs_slice properties)
{
    bc_column *list = &batch->columns[BC_LOG_KEYS];
    if (!list->ends)
        return;
    hs_slice unique = value_of(properties, "UNIQ_KEY");
    if (unique.text)
        put_key(batch, unique);
    hs_slice keys = value_of(properties, "KEYS");
    hs_slice key;
    while (hs_next_key(&keys, &key))
        put_key(batch, key);
    list->ends[batch->rows + 1] = (int32_t)list->used;
}

/* --- topics and tubes, as beanstalkd_py/history/topics.py defines them --- */

static bool is_kept(unsigned char byte)
{
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') ||
           byte == '-' || byte == '_';
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Writes the tube's name, at most TOPIC_MAX bytes, and returns its length; -1 for a topic that has no tube. */
static int32_t tube_of_topic(hs_slice topic, char *tube)
{
    int32_t length = 0;
    if (topic.length == 0 || topic.length > TOPIC_MAX)
        return -1;
    for (size_t at = 0; at < topic.length; at++) {
        const char *text = topic.text + at;
        if (*text != '%') {
            if (!is_kept((unsigned char)*text))
                return -1;
            tube[length++] = *text;
            continue;
        }
        int high = at + 2 < topic.length ? digit(text[1]) : -1;
        int low = at + 2 < topic.length ? digit(text[2]) : -1;
        /* Bytes that need no escape are never escaped: a topic has one spelling. */
        if (high < 0 || low < 0 || is_kept((unsigned char)(high * 16 + low)))
            return -1;
        tube[length++] = (char)(high * 16 + low);
        at += 2;
    }
    return length;
}

/* --- rows --- */

static void put_host(bc_batch *batch, int column, const char *at, bool is_ipv6)
{
    if (!batch->columns[column].values)
        return;
    char address[INET6_ADDRSTRLEN];
    char text[HOST_MAX];
    if (!inet_ntop(is_ipv6 ? AF_INET6 : AF_INET, at, address, sizeof address))
        address[0] = '\0';
    int32_t port = hs_get32(at + (is_ipv6 ? 16 : 4));
    int length = snprintf(text, sizeof text, is_ipv6 ? "[%s]:%d" : "%s:%d", address, port);
    bc_put_text(batch, column, text, (size_t)length);
}

static void put_tube(bc_batch *batch, hs_slice topic, hs_slice properties)
{
    if (!batch->columns[BC_LOG_TUBE].values)
        return;
    char name[TOPIC_MAX];
    hs_slice tube = value_of(properties, "TUBE");
    if (!tube.text) {
        int32_t length = tube_of_topic(topic, name);
        tube = length >= 0 && hs_is_utf8(name, (size_t)length) ? (hs_slice){name, (size_t)length} : (hs_slice){NULL, 0};
    }
    put_column_utf8(batch, BC_LOG_TUBE, tube);
}

static void put_message(bc_batch *batch, const char *data, const hs_record *record)
{
    hs_slice topic = {data + record->topic_at, record->topic_length};
    hs_slice properties = {data + record->properties_at, record->properties_length};
    put_column_utf8(batch, BC_LOG_TOPIC, topic);
    put_tube(batch, topic, properties);
    bc_put_int(batch, BC_LOG_QUEUE_ID, record->queue_id);
    bc_put_long(batch, BC_LOG_QUEUE_OFFSET, record->queue_offset);
    bc_put_long(batch, BC_LOG_OFFSET, record->offset);
    bc_put_int(batch, BC_LOG_SIZE, record->size);
    if (batch->columns[BC_LOG_TAGS].values)
        put_column_utf8(batch, BC_LOG_TAGS, value_of(properties, "TAGS"));
    put_keys(batch, properties);
    put_properties(batch, properties);
    bc_put_int(batch, BC_LOG_FLAG, record->flag);
    bc_put_int(batch, BC_LOG_SYS_FLAG, record->sys_flag);
    bc_put_int(batch, BC_LOG_RECONSUMED, record->reconsume_times);
    bc_put_long(batch, BC_LOG_BORN, record->born_timestamp * MICROSECONDS);
    bc_put_long(batch, BC_LOG_STORED, record->store_timestamp * MICROSECONDS);
    put_host(batch, BC_LOG_BORN_HOST, data + record->born_host_at, record->sys_flag & HS_FLAG_BORN_IPV6);
    put_host(batch, BC_LOG_STORE_HOST, data + record->store_host_at, record->sys_flag & HS_FLAG_STORE_IPV6);
    bc_put_int(batch, BC_LOG_BODY_CRC, record->body_crc);
    bc_put_int(batch, BC_LOG_BODY_SIZE, (int32_t)record->body_length);
    bc_put_long(batch, BC_LOG_PREPARED, record->prepared_offset);
    bc_put_text(batch, BC_LOG_BODY, data + record->body_at, record->body_length);
    batch->rows++;
}

/* Reserves space; only an upper bound is known for the properties. */
static bool fits(bc_batch *batch, const hs_record *record)
{
    size_t topic = (size_t)record->topic_length * GROWTH;
    size_t properties = (size_t)record->properties_length * GROWTH;
    return bc_has_space(batch, BC_LOG_TOPIC, topic) && bc_has_space(batch, BC_LOG_TUBE, topic + properties) &&
           bc_has_space(batch, BC_LOG_TAGS, properties) &&
           bc_has_space(batch, BC_LOG_KEYS, record->properties_length) &&
           bc_has_space(batch, BC_LOG_KEY_TEXT, properties) &&
           bc_has_space(batch, BC_LOG_PROPERTIES, record->properties_length) &&
           bc_has_space(batch, BC_LOG_PROPERTY_NAME, properties) &&
           bc_has_space(batch, BC_LOG_PROPERTY_VALUE, properties) &&
           bc_has_space(batch, BC_LOG_BORN_HOST, HOST_MAX) && bc_has_space(batch, BC_LOG_STORE_HOST, HOST_MAX) &&
           bc_has_space(batch, BC_LOG_BODY, record->body_length);
}

/* --- files --- */

static bool rest_is_zero(const bc_log *log)
{
    const char *at = log->data + log->at;
    size_t length = log->length - (size_t)log->at;
    return length == 0 || (at[0] == 0 && memcmp(at, at + 1, length - 1) == 0);
}

static int read_at(const bc_log *log, int64_t at, hs_record *record)
{
    return hs_record_read(log->data + at, log->length - (size_t)at, log->base + at, log->checks, record);
}

/* Returns the offset of the next record whose recorded offset is right; the length if there is none. */
static int64_t resync(const bc_log *log, int64_t at)
{
    hs_record record;
    const int64_t last = (int64_t)log->length - HS_RECORD_MIN;
    while (at <= last) {
        const char *magic = log->data + at + HS_AT_MAGIC;
        const char *byte = memchr(magic, 0xDA, (size_t)(last - at) + 1);
        if (!byte)
            break;
        at += byte - magic;
        if (read_at(log, at, &record) == HS_FOUND_RECORD)
            return at;
        at++;
    }
    return (int64_t)log->length;
}

void bc_log_seek(bc_log *log, int64_t begin)
{
    log->at = begin > 0 ? resync(log, begin) : 0;
}

static int set_fault(bc_log *log, int result)
{
    log->fault = (bc_fault){.at = log->at, .next = resync(log, log->at + 1), .found = result};
    log->fault.torn = log->fault.next == (int64_t)log->length;
    return BC_FAULT;
}

void bc_log_skip(bc_log *log)
{
    log->at = log->fault.next;
}

int bc_log_read(bc_log *log, bc_batch *batch)
{
    hs_record record;
    while (log->at < (int64_t)log->length && log->base + log->at < log->to) {
        int result = read_at(log, log->at, &record);
        if (result == HS_FOUND_BLANK && log->at + record.size == (int64_t)log->length)
            return BC_END;
        if (result != HS_FOUND_RECORD) {
            bool is_end = (result == HS_FOUND_NOTHING || result == HS_FOUND_CUT) && rest_is_zero(log);
            return is_end ? BC_END : set_fault(log, result);
        }
        if (record.offset >= log->from) {
            if (batch->rows == batch->capacity || !fits(batch, &record))
                return batch->rows > 0 ? BC_MORE : BC_NO_SPACE;
            put_message(batch, log->data + log->at, &record);
        }
        log->at += record.size;
    }
    return BC_END;
}
