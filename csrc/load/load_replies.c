#include "load/load_replies.h"

#include <string.h>

#include "api/load.h"

static ptrdiff_t match(const char *p, size_t n, const char *word, size_t length)
{
    if (memcmp(p, word, n < length ? n : length) != 0)
        return -1;
    return n < length ? 0 : (ptrdiff_t)length;
}

#define MATCH(p, n, word) match((p), (n), (word), sizeof(word) - 1)

/* Returns the index after the digits at `from` and the `ending` that must follow. */
static ptrdiff_t match_number(const char *p, size_t n, size_t from, const char *ending, size_t ending_length)
{
    size_t i = from;
    while (i < n && p[i] >= '0' && p[i] <= '9')
        i++;
    if (i - from > BS_ID_DIGITS_MAX)
        return -1;
    if (i == n)
        return 0;
    if (i == from)
        return -1;
    const ptrdiff_t end = match(p + i, n - i, ending, ending_length);
    return end <= 0 ? end : (ptrdiff_t)i + end;
}

static ptrdiff_t read_reserved(bs_replies *replies, uint64_t expected, const char *p, size_t n)
{
    const ptrdiff_t word = MATCH(p, n, "RESERVED ");
    if (word <= 0)
        return word;
    const ptrdiff_t id_end = match_number(p, n, (size_t)word, " ", 1);
    if (id_end <= 0)
        return id_end;
    const ptrdiff_t line_end = match_number(p, n, (size_t)id_end, "\r\n", 2);
    if (line_end <= 0)
        return line_end;
    uint64_t body = 0;
    for (ptrdiff_t i = id_end; i < line_end - 2; i++)
        body = body * 10 + (uint64_t)(p[i] - '0');
    if (expected != UINT64_MAX && body != expected)
        return -1;
    const size_t digits = (size_t)(id_end - 1 - word);
    char *d = replies->deletes + replies->delete_bytes;
    memcpy(d, "delete ", 7);
    memcpy(d + 7, p + word, digits);
    memcpy(d + 7 + digits, "\r\n", 2);
    replies->delete_bytes += 7 + digits + 2;
    replies->deletes_count++;
    replies->skip = (size_t)body + 2;
    return line_end;
}

ptrdiff_t bs_reply_read(bs_replies *replies, int kind, uint64_t body, const char *bytes, size_t n)
{
    if (kind == BS_LOAD_RESERVE)
        return read_reserved(replies, body, bytes, n);
    if (kind == BS_LOAD_DELETE)
        return MATCH(bytes, n, "DELETED\r\n");
    const ptrdiff_t word = MATCH(bytes, n, "INSERTED ");
    return word <= 0 ? word : match_number(bytes, n, (size_t)word, "\r\n", 2);
}

ptrdiff_t bs_reply_read_unique(const char *bytes, size_t n)
{
    const ptrdiff_t word = MATCH(bytes, n, "WITH\r\nINSERTED ");
    return word <= 0 ? word : match_number(bytes, n, (size_t)word, "\r\n", 2);
}

ptrdiff_t bs_reply_timed_out(const char *bytes, size_t n)
{
    return MATCH(bytes, n, "TIMED_OUT\r\n");
}
