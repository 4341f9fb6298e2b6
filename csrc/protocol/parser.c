#include "protocol/parser.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/put_options.h"
#include "protocol/tube_name.h"

typedef enum {
    NOTHING,
    ANYTHING,
    ID,
    ID_PRI,
    ID_PRI_DELAY,
    PUT_NUMBERS,
    TIMEOUT,
    COUNT,
    TUBE,
    TUBE_DELAY,
    TUBE_STATE_ID_COUNT,
    TIMEOUT_ID,
    BATCH_TIMEOUT,
    OPTIONS,
    ID_TUBE_PRI_DELAY
} arguments;

typedef struct {
    const char *text;
    uint8_t length;
    uint8_t verb;
    uint8_t arguments;
} word;

#define WORD(text, verb, arguments) {text, sizeof(text) - 1, verb, arguments}

/* The first word that is a prefix of the line matches, so longer words precede their prefixes. */
static const word words[] = {
    WORD("put ", BS_VERB_PUT, PUT_NUMBERS),
    WORD("peek ", BS_VERB_PEEK, ID),
    WORD("peek-ready", BS_VERB_PEEK_READY, NOTHING),
    WORD("peek-delayed", BS_VERB_PEEK_DELAYED, NOTHING),
    WORD("peek-buried", BS_VERB_PEEK_BURIED, NOTHING),
    WORD("reserve-with-timeout ", BS_VERB_RESERVE_WITH_TIMEOUT, TIMEOUT),
    WORD("reserve-job ", BS_VERB_RESERVE_JOB, ID),
    WORD("reserve", BS_VERB_RESERVE, NOTHING),
    WORD("delete ", BS_VERB_DELETE, ID),
    WORD("release ", BS_VERB_RELEASE, ID_PRI_DELAY),
    WORD("bury ", BS_VERB_BURY, ID_PRI),
    WORD("kick ", BS_VERB_KICK, COUNT),
    WORD("kick-job ", BS_VERB_KICK_JOB, ID),
    WORD("touch ", BS_VERB_TOUCH, ID),
    WORD("stats-job ", BS_VERB_STATS_JOB, ID),
    WORD("stats-tube ", BS_VERB_STATS_TUBE, TUBE),
    WORD("stats", BS_VERB_STATS, NOTHING),
    WORD("use ", BS_VERB_USE, TUBE),
    WORD("watch ", BS_VERB_WATCH, TUBE),
    WORD("ignore ", BS_VERB_IGNORE, TUBE),
    WORD("list-tubes-watched", BS_VERB_LIST_TUBES_WATCHED, NOTHING),
    WORD("list-tube-used", BS_VERB_LIST_TUBE_USED, NOTHING),
    WORD("list-tubes", BS_VERB_LIST_TUBES, NOTHING),
    WORD("quit", BS_VERB_QUIT, ANYTHING),
    WORD("pause-tube", BS_VERB_PAUSE_TUBE, TUBE_DELAY),
    /* Extensions follow, so that the other words are found as fast as without them. */
    WORD("features", BS_VERB_FEATURES, NOTHING),
    WORD("list-jobs ", BS_VERB_LIST_JOBS, TUBE_STATE_ID_COUNT),
    WORD("truncate ", BS_VERB_TRUNCATE, TUBE),
    WORD("wait ", BS_VERB_WAIT, TIMEOUT_ID),
    WORD("reserve-abort", BS_VERB_RESERVE_ABORT, NOTHING),
    WORD("reserve-batch ", BS_VERB_RESERVE_BATCH, BATCH_TIMEOUT),
    WORD("with ", BS_VERB_WITH, OPTIONS),
    WORD("move ", BS_VERB_MOVE, ID_TUBE_PRI_DELAY),
};

const char *const bs_state_names[BS_STATES] = {"any", "ready", "reserved", "buried", "delayed"};

void bs_verb_word(bs_verb verb, char *text)
{
    const word *w = words;
    while (w->verb != verb)
        w++;
    size_t length = strcspn(w->text, " ");
    memcpy(text, w->text, length);
    text[length] = '\0';
}

/* The arguments that are not parsed yet. */
typedef struct {
    const char *at;
    const char *end;
} rest;

static void skip_spaces(rest *r)
{
    while (r->at < r->end && *r->at == ' ')
        r->at++;
}

static bool read_number(rest *r, uint64_t most, uint64_t *out)
{
    uint64_t number = 0;
    skip_spaces(r);
    const char *first = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        uint64_t digit = (uint64_t)(*r->at - '0');
        if (number > (most - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *out = number;
    return r->at > first;
}

static bool read_u32(rest *r, uint32_t *out)
{
    uint64_t number;
    if (!read_number(r, UINT32_MAX, &number))
        return false;
    *out = (uint32_t)number;
    return true;
}

static bool at_end(const rest *r)
{
    return r->at == r->end;
}

/* Reads a number with strtoul, because C beanstalkd does: with white space, a sign or trailing bytes; cut to 32 bits. */
static bool read_count(const rest *r, uint32_t *out)
{
    char text[BS_LINE_MAX];
    size_t length = (size_t)(r->end - r->at);
    assert(length < sizeof text);
    memcpy(text, r->at, length);
    text[length] = '\0';
    char *end;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    *out = (uint32_t)(number & UINT32_MAX);
    return end != text && errno == 0;
}

/* Reads a tube name and returns whether it is valid. */
static bool read_tube(rest *r, bs_command *command)
{
    command->name = r->at;
    command->name_length = bs_tube_name_span(r->at, (size_t)(r->end - r->at));
    r->at += command->name_length;
    return bs_tube_name_valid(command->name, command->name_length);
}

static bool read_tube_delay(rest *r, bs_command *command)
{
    skip_spaces(r);
    command->malformed = !read_tube(r, command);
    return command->name_length > 0 && read_u32(r, &command->delay) && at_end(r);
}

static bool read_state(rest *r, uint8_t *state)
{
    skip_spaces(r);
    const char *end = memchr(r->at, ' ', (size_t)(r->end - r->at));
    if (!end)
        return false;
    const size_t length = (size_t)(end - r->at);
    for (*state = 0; *state < BS_STATES; ++*state) {
        if (length == strlen(bs_state_names[*state]) && memcmp(r->at, bs_state_names[*state], length) == 0) {
            r->at = end;
            return true;
        }
    }
    return false;
}

static bool read_list(rest *r, bs_command *command)
{
    return read_tube(r, command) && read_state(r, &command->state) && read_number(r, UINT64_MAX, &command->after_id) &&
           read_u32(r, &command->number) && command->number > 0 && at_end(r);
}

static bool read_move(rest *r, bs_command *command)
{
    const bool has_id = read_number(r, UINT64_MAX, &command->id) && !at_end(r) && *r->at == ' ';
    skip_spaces(r);
    return has_id && read_tube(r, command) && read_u32(r, &command->pri) && read_u32(r, &command->delay) && at_end(r);
}

static bool read_put(rest *r, bs_command *command)
{
    const bool complete = read_u32(r, &command->pri) && read_u32(r, &command->delay) && read_u32(r, &command->ttr) &&
                          read_u32(r, &command->number);
    command->malformed = !at_end(r);
    return complete;
}

static bool read_options(rest *r, bs_command *command)
{
    bs_put_options options;
    command->name = r->at;
    command->name_length = (size_t)(r->end - r->at);
    return bs_put_options_parse(command->name, command->name_length, &options);
}

static bool read_arguments(arguments kind, rest *r, bs_command *command)
{
    switch (kind) {
    case NOTHING:
        return at_end(r);
    case ANYTHING:
        return true;
    case ID:
        return read_number(r, UINT64_MAX, &command->id) && at_end(r);
    case ID_PRI:
        return read_number(r, UINT64_MAX, &command->id) && read_u32(r, &command->pri) && at_end(r);
    case ID_PRI_DELAY:
        return read_number(r, UINT64_MAX, &command->id) && read_u32(r, &command->pri) &&
               read_u32(r, &command->delay) && at_end(r);
    case PUT_NUMBERS:
        return read_put(r, command);
    case TIMEOUT:
        return read_u32(r, &command->number) && command->number <= INT32_MAX;
    case COUNT:
        return read_count(r, &command->number);
    case TUBE:
        return read_tube(r, command) && at_end(r);
    case TUBE_DELAY:
        return read_tube_delay(r, command);
    case TUBE_STATE_ID_COUNT:
        return read_list(r, command);
    case TIMEOUT_ID:
        return read_u32(r, &command->number) && command->number <= INT32_MAX &&
               read_number(r, UINT64_MAX, &command->id) && at_end(r);
    case BATCH_TIMEOUT:
        return read_u32(r, &command->batch) && command->batch > 0 && command->batch <= BS_BATCH_MAX &&
               read_u32(r, &command->number) && command->number <= INT32_MAX && at_end(r);
    case OPTIONS:
        return read_options(r, command);
    case ID_TUBE_PRI_DELAY:
        return read_move(r, command);
    }
    abort();
}

bs_parsed bs_parse(const char *line, size_t length, bs_command *command)
{
    bs_parsed refusal = BS_UNKNOWN_COMMAND;
    if (memchr(line, '\0', length))
        return BS_BAD_FORMAT;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const word *w = &words[i];
        if (length < w->length || line[0] != w->text[0] || memcmp(line, w->text, w->length) != 0)
            continue;
        *command = (bs_command){.verb = (bs_verb)w->verb};
        rest r = {line + w->length, line + length};
        if (read_arguments((arguments)w->arguments, &r, command))
            return BS_PARSED;
        refusal = BS_BAD_FORMAT;
        if (w->verb != BS_VERB_RESERVE)
            break; /* reserve-abort and reserve-batch start with reserve */
    }
    return refusal;
}
