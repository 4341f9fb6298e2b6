#include "store/record.h"

#include <string.h>

#include "base/crc32c.h"
#include "store/order.h"

static bs_crc_table crc_table;

/* When the library is loaded, before any thread runs. */
__attribute__((constructor)) static void prepare(void)
{
    bs_crc_fill(crc_table, 0xEDB88320U);
}

uint32_t hs_crc32(uint32_t crc, const char *data, size_t length)
{
    return ~bs_crc_update(crc_table, ~crc, data, length);
}

static const char CRC_NAME[] = "__CRC32#\001";

enum { CRC_NAME_LENGTH = sizeof CRC_NAME - 1, CRC_DIGITS = 10 };

bool hs_ends_with_crc(const char *properties, size_t length)
{
    if (length < HS_CRC_PROPERTY)
        return false;
    const char *last = properties + length - HS_CRC_PROPERTY;
    return memcmp(last, CRC_NAME, CRC_NAME_LENGTH) == 0 && last[HS_CRC_PROPERTY - 1] == 2;
}

/* The last digit comes first. */
static void write_digits(char *out, uint32_t crc)
{
    for (int place = 0; place < CRC_DIGITS; place++, crc /= 10)
        out[place] = (char)('0' + crc % 10);
}

static uint32_t record_crc(const char *record, size_t size)
{
    return hs_crc32(0, record, size - HS_CRC_PROPERTY) & 0x7FFFFFFFU;
}

void hs_seal_record(char *record, size_t size)
{
    char *property = record + size - HS_CRC_PROPERTY;
    memcpy(property, CRC_NAME, CRC_NAME_LENGTH);
    write_digits(property + CRC_NAME_LENGTH, record_crc(record, size));
    property[HS_CRC_PROPERTY - 1] = 2;
}

static bool crc_is_right(const char *record, size_t size)
{
    char digits[CRC_DIGITS];
    write_digits(digits, record_crc(record, size));
    return memcmp(record + size - 1 - CRC_DIGITS, digits, CRC_DIGITS) == 0;
}

/* Reads a length of `width` bytes at `*at` and skips so many bytes behind it. Lengths are signed, as in Java. */
static bool take_text(const char *data, uint32_t size, uint32_t *at, uint32_t width, uint32_t *text_at,
                      uint32_t *text_length)
{
    if (size - *at < width)
        return false;
    int32_t length = width == 1 ? (int8_t)data[*at] : width == 2 ? hs_get16(data + *at) : hs_get32(data + *at);
    *at += width;
    if (length < 0 || (uint32_t)length > size - *at)
        return false;
    *text_at = *at;
    *text_length = (uint32_t)length;
    *at += (uint32_t)length;
    return true;
}

/* Reads the fields of a complete record. Returns false if they do not add up to its size. */
static bool take_fields(const char *data, hs_record *record)
{
    uint32_t size = (uint32_t)record->size;
    record->body_crc = hs_get32(data + HS_AT_BODY_CRC);
    record->queue_id = hs_get32(data + HS_AT_QUEUE_ID);
    record->flag = hs_get32(data + HS_AT_FLAG);
    record->queue_offset = hs_get64(data + HS_AT_QUEUE_OFFSET);
    record->physical_offset = hs_get64(data + HS_AT_OFFSET);
    record->sys_flag = hs_get32(data + HS_AT_SYS_FLAG);
    record->born_timestamp = hs_get64(data + HS_AT_BORN);
    record->born_host_at = HS_AT_BORN_HOST;
    uint32_t at = HS_AT_BORN_HOST + hs_host_size(record->sys_flag, HS_FLAG_BORN_IPV6);
    uint32_t after_store_host = at + 8 + hs_host_size(record->sys_flag, HS_FLAG_STORE_IPV6);
    if (after_store_host + 4 + 8 > size)
        return false;
    record->store_timestamp = hs_get64(data + at);
    record->store_host_at = at + 8;
    record->reconsume_times = hs_get32(data + after_store_host);
    record->prepared_offset = hs_get64(data + after_store_host + 4);
    at = after_store_host + 4 + 8;
    uint32_t topic_width = record->magic == HS_MAGIC_V2 ? 2 : 1;
    if (!take_text(data, size, &at, 4, &record->body_at, &record->body_length) ||
        !take_text(data, size, &at, topic_width, &record->topic_at, &record->topic_length) ||
        !take_text(data, size, &at, 2, &record->properties_at, &record->properties_length))
        return false;
    return at == size;
}

static bool text_is_whole(const char *data, const hs_record *record)
{
    return record->topic_length > 0 && !memchr(data + record->topic_at, 0, record->topic_length) &&
           !memchr(data + record->properties_at, 0, record->properties_length);
}

int hs_record_read(const char *data, size_t length, int64_t offset, int32_t checks, hs_record *record)
{
    if (length < HS_BLANK)
        return HS_FOUND_CUT;
    record->offset = offset;
    record->size = hs_get32(data + HS_AT_SIZE);
    record->magic = hs_get32(data + HS_AT_MAGIC);
    if (record->magic == HS_MAGIC_BLANK)
        return record->size >= HS_BLANK ? HS_FOUND_BLANK : HS_FOUND_BAD_SIZE;
    if (record->magic == 0 && record->size == 0)
        return HS_FOUND_NOTHING;
    if (record->magic != HS_MAGIC_V1 && record->magic != HS_MAGIC_V2)
        return HS_FOUND_BAD_MAGIC;
    if (record->size < HS_RECORD_MIN)
        return HS_FOUND_BAD_SIZE;
    if ((size_t)record->size > length)
        return HS_FOUND_CUT;
    if (!take_fields(data, record))
        return HS_FOUND_BAD_SIZE;
    if (record->physical_offset != offset)
        return HS_FOUND_BAD_OFFSET;
    record->has_crc = hs_ends_with_crc(data + record->properties_at, record->properties_length);
    if (checks & HS_CHECK_BODY) {
        uint32_t crc = hs_crc32(0, data + record->body_at, record->body_length) & 0x7FFFFFFFU;
        if (crc != (uint32_t)record->body_crc)
            return HS_FOUND_BAD_BODY;
    }
    if ((checks & HS_CHECK_HAS_CRC) && !record->has_crc)
        return HS_FOUND_BAD_CRC;
    if ((checks & HS_CHECK_PROPERTY_CRC) && record->has_crc && !crc_is_right(data, (size_t)record->size))
        return HS_FOUND_BAD_CRC;
    if ((checks & HS_CHECK_TEXT) && !text_is_whole(data, record))
        return HS_FOUND_BAD_TEXT;
    return HS_FOUND_RECORD;
}

void hs_scan(const char *data, size_t length, int64_t offset, int32_t checks, hs_record *records, int64_t most,
             hs_scanned *scanned)
{
    *scanned = (hs_scanned){.why = HS_FOUND_RECORD};
    while (scanned->count < most) {
        hs_record *record = &records[scanned->count];
        scanned->why = hs_record_read(data + scanned->used, length - scanned->used, offset + (int64_t)scanned->used,
                                      checks, record);
        if (scanned->why != HS_FOUND_RECORD)
            return;
        scanned->count++;
        scanned->used += (size_t)record->size;
    }
}
