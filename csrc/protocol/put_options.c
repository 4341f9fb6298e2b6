#include "protocol/put_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a whole decimal number. */
static bool read_u32(const char *at, const char *end, uint32_t *out)
{
    uint64_t number = 0;
    if (at == end)
        return false;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return false;
        number = number * 10 + (uint64_t)(*at - '0');
        if (number > UINT32_MAX)
            return false;
    }
    *out = (uint32_t)number;
    return true;
}

/* Reads a number of seconds, at least 1, that is not given yet. */
static bool read_seconds(const char *at, const char *end, uint32_t *out)
{
    return *out == 0 && read_u32(at, end, out) && *out > 0;
}

/* Returns whether the word begins with this name, and skips it. */
static bool skip_name(const char **at, const char *end, const char *name)
{
    const size_t length = strlen(name);
    if ((size_t)(end - *at) < length || memcmp(*at, name, length) != 0)
        return false;
    *at += length;
    return true;
}

/* Reads a key of visible ASCII characters. */
static bool read_key(const char *at, const char *end, bs_put_options *options)
{
    if (options->key || at == end || end - at > BS_UNIQUE_MAX)
        return false;
    options->key = at;
    options->key_length = (uint8_t)(end - at);
    for (; at < end; at++)
        if (*at < '!' || *at > '~')
            return false;
    return true;
}

static bool read_word(const char *at, const char *end, bs_put_options *options)
{
    if (skip_name(&at, end, "delay-ms=")) {
        if (options->has_delay)
            return false;
        options->has_delay = true;
        return read_u32(at, end, &options->delay_ms);
    }
    if (skip_name(&at, end, "unique="))
        return read_key(at, end, options);
    if (skip_name(&at, end, "expires="))
        return read_seconds(at, end, &options->expires);
    if (skip_name(&at, end, "window="))
        return read_seconds(at, end, &options->window);
    return false;
}

bool bs_put_options_parse(const char *text, size_t length, bs_put_options *options)
{
    const char *end = text + length;
    *options = (bs_put_options){.has_delay = false};
    for (const char *at = text;;) {
        const char *space = memchr(at, ' ', (size_t)(end - at));
        if (!read_word(at, space ? space : end, options))
            return false;
        if (!space)
            return options->key || !options->window;
        at = space + 1;
    }
}

typedef bool parse_text(const char *, size_t, bs_put_options *);

static bs_put_options *new_parsed(parse_text *parse, const char *text, size_t length)
{
    bs_put_options *options = length <= UINT8_MAX ? malloc(sizeof *options + length) : NULL;
    if (!options)
        return NULL;
    if (!parse(text, length, options)) {
        free(options);
        return NULL;
    }
    memcpy(options->text, text, length);
    options->length = (uint8_t)length;
    if (options->key)
        options->key = options->text + (options->key - text);
    return options;
}

bs_put_options *bs_put_options_new(const char *text, size_t length)
{
    return new_parsed(bs_put_options_parse, text, length);
}

#define MOVED_FORMAT "%" PRId64 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32

size_t bs_put_options_write_moved(char text[BS_MOVED_TEXT_MAX], const bs_moved_job *of)
{
    return (size_t)snprintf(text, BS_MOVED_TEXT_MAX, MOVED_FORMAT, of->created_at, of->reserves, of->timeouts,
                            of->releases, of->buries, of->kicks);
}

static bool parse_moved(const char *text, size_t length, bs_put_options *options)
{
    char line[BS_MOVED_TEXT_MAX];
    if (length >= sizeof line)
        return false;
    memcpy(line, text, length);
    line[length] = '\0';
    *options = (bs_put_options){.moved = true};
    char *at = line;
    options->of.created_at = strtoll(at, &at, 10);
    uint32_t *const counters[] = {&options->of.reserves, &options->of.timeouts, &options->of.releases,
                                  &options->of.buries, &options->of.kicks};
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        *counters[i] = (uint32_t)strtoul(at, &at, 10);
    return at == line + length;
}

bs_put_options *bs_put_options_new_moved(const char *text, size_t length)
{
    return new_parsed(parse_moved, text, length);
}
