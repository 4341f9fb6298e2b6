#include "columns/topic.h"

#include <stdbool.h>

static bool is_kept(unsigned char byte)
{
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') ||
           byte == '-' || byte == '_';
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int32_t bc_tube_of_topic(const char *topic, size_t length, char *tube)
{
    int32_t made = 0;
    if (length == 0 || length > BC_TOPIC_MAX)
        return -1;
    for (size_t at = 0; at < length; at++) {
        if (topic[at] != '%') {
            if (!is_kept((unsigned char)topic[at]))
                return -1;
            tube[made++] = topic[at];
            continue;
        }
        int high = at + 2 < length ? digit(topic[at + 1]) : -1;
        int low = at + 2 < length ? digit(topic[at + 2]) : -1;
        /* Bytes that need no escape are never escaped: a topic has one spelling. */
        if (high < 0 || low < 0 || is_kept((unsigned char)(high * 16 + low)))
            return -1;
        tube[made++] = (char)(high * 16 + low);
        at += 2;
    }
    return made;
}
