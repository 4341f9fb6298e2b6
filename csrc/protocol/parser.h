/* Parses a command line. Knows the words and their arguments, not their semantics.
 *
 * docs/protocol.md (Input) has the rules and their precedence.
 */
#ifndef BS_PARSER_H
#define BS_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BS_LINE_MAX = 224 }; /* bytes, with CR LF */

typedef enum {
    BS_VERB_PUT,
    BS_VERB_PEEK,
    BS_VERB_PEEK_READY,
    BS_VERB_PEEK_DELAYED,
    BS_VERB_PEEK_BURIED,
    BS_VERB_RESERVE_WITH_TIMEOUT,
    BS_VERB_RESERVE_JOB,
    BS_VERB_RESERVE,
    BS_VERB_DELETE,
    BS_VERB_RELEASE,
    BS_VERB_BURY,
    BS_VERB_KICK,
    BS_VERB_KICK_JOB,
    BS_VERB_TOUCH,
    BS_VERB_STATS_JOB,
    BS_VERB_STATS_TUBE,
    BS_VERB_STATS,
    BS_VERB_USE,
    BS_VERB_WATCH,
    BS_VERB_IGNORE,
    BS_VERB_LIST_TUBES_WATCHED,
    BS_VERB_LIST_TUBE_USED,
    BS_VERB_LIST_TUBES,
    BS_VERB_QUIT,
    BS_VERB_PAUSE_TUBE,
    BS_VERBS
} bs_verb;

typedef struct {
    bs_verb verb;
    int counter;     /* BS_CMD_, or -1: not counted */
    uint64_t id;
    uint32_t pri;
    uint32_t delay;  /* seconds; also of a pause */
    uint32_t ttr;    /* seconds */
    uint32_t number; /* body bytes, timeout in seconds, or how many to kick */
    const char *name;
    size_t name_length;
    bool malformed;  /* counted, then answered with BAD_FORMAT */
} bs_command;

/* Writes the command's word, at most BS_WORD_MAX bytes with its NUL. */
void bs_verb_word(bs_verb verb, char *word);

typedef enum { BS_PARSED, BS_UNKNOWN_COMMAND, BS_BAD_FORMAT } bs_parsed;

/* The line is without CR LF and shorter than BS_LINE_MAX. `name` points into it. */
bs_parsed bs_parse(const char *line, size_t length, bs_command *command);

#endif
