/* The layout of a record: one message as bytes. */
#ifndef HS_RECORD_H
#define HS_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

#define HS_MAGIC_V1 (-626843481)
#define HS_MAGIC_V2 (-626843477)
#define HS_MAGIC_BLANK (-875286124)

enum {
    HS_AT_SIZE = 0,
    HS_AT_MAGIC = 4,
    HS_AT_BODY_CRC = 8,
    HS_AT_QUEUE_ID = 12,
    HS_AT_FLAG = 16,
    HS_AT_QUEUE_OFFSET = 20,
    HS_AT_OFFSET = 28,
    HS_AT_SYS_FLAG = 36,
    HS_AT_BORN = 40,
    HS_AT_BORN_HOST = 48, /* the first field after which positions differ */
    HS_RECORD_MIN = 91,   /* bytes, version 1, IPv4, with all optional parts empty */
    HS_V1_TOPIC_MAX = 127,
    HS_PROPERTIES_MAX = 32767,
    HS_CRC_PROPERTY = 20 /* bytes: name, 0x01, ten digits, 0x02 */
};

enum {
    HS_FLAG_TRANSACTION = 3 << 2,
    HS_FLAG_PREPARED = 1 << 2,
    HS_FLAG_ROLLBACK = 3 << 2,
    HS_FLAG_BORN_IPV6 = 1 << 4,
    HS_FLAG_STORE_IPV6 = 1 << 5,
    HS_FLAG_INNER_BATCH = 1 << 7
};

/* Prepared and rolled-back messages are in no queue. */
static inline bool hs_in_queue(int32_t sys_flag)
{
    int transaction = sys_flag & HS_FLAG_TRANSACTION;
    return transaction != HS_FLAG_PREPARED && transaction != HS_FLAG_ROLLBACK;
}

static inline uint32_t hs_host_size(int32_t sys_flag, int32_t ipv6_bit)
{
    return sys_flag & ipv6_bit ? 20 : 8;
}

/* Returns whether the properties end with a CRC property, right or wrong. */
bool hs_ends_with_crc(const char *properties, size_t length);

/* Writes the CRC property of a record; the bytes before it must be complete. */
void hs_seal_record(char *record, size_t size);

#endif
