/* Parses a command line. Knows the words and their arguments, not their semantics.
 *
 * docs/protocol.md (Input) has the rules and their precedence.
 */
#ifndef BS_PARSER_H
#define BS_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/types.h"

enum { BS_LINE_MAX = 224 }; /* bytes, with CR LF */
enum { BS_BATCH_MAX = 1000 };

typedef struct {
    bs_verb verb;
    uint64_t id;
    uint64_t after_id; /* list jobs with higher ids */
    uint32_t pri;
    uint32_t delay;  /* seconds; also of a pause */
    uint32_t ttr;    /* seconds */
    uint32_t number; /* body bytes, timeout in seconds, or how many jobs to kick or to list */
    uint32_t batch;  /* most jobs of a batch; 0: no batch */
    const char *name; /* of a tube; of `with`: its arguments */
    size_t name_length;
    uint8_t state;   /* of the jobs to list, as in job.h; 0: any */
    bool malformed;  /* counted, then answered with BAD_FORMAT */
} bs_command;

/* By the numbers of job.h; 0: any. */
enum { BS_STATES = 5 };
extern const char *const bs_state_names[BS_STATES];

/* Writes the command's word, at most BS_WORD_MAX bytes with its NUL. */
void bs_verb_word(bs_verb verb, char *word);

typedef enum { BS_PARSED, BS_UNKNOWN_COMMAND, BS_BAD_FORMAT } bs_parsed;

/* The line is without CR LF and shorter than BS_LINE_MAX. `name` points into it. */
bs_parsed bs_parse(const char *line, size_t length, bs_command *command);

#endif
