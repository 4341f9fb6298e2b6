/* The options that `with` gives to the next put of its connection, and those of a job that moves to another worker. */
#ifndef BS_PUT_OPTIONS_H
#define BS_PUT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BS_UNIQUE_MAX = 128 };

/* What a moved job keeps. */
typedef struct {
    int64_t created_at; /* wall */
    uint32_t reserves;
    uint32_t timeouts;
    uint32_t releases;
    uint32_t buries;
    uint32_t kicks;
} bs_moved_job;

/* The parsed arguments, and their text, by which they travel to another worker. */
typedef struct {
    bool has_delay;
    uint32_t delay_ms; /* replaces the delay of the put */
    const char *key;   /* in the text; NULL: none */
    uint8_t key_length;
    uint32_t window;   /* seconds after the job's end for which it keeps the key */
    uint32_t expires;  /* seconds after the put; 0: never */
    bool moved;        /* the put continues a job, which has this age and these counters */
    bs_moved_job of;
    uint8_t length;    /* of the text */
    char text[];
} bs_put_options;

/* Parses the arguments of a `with` line into `options`, except the text. Returns false if they are invalid. */
bool bs_put_options_parse(const char *text, size_t length, bs_put_options *options);

/* Returns an allocated copy of these arguments, parsed; NULL without memory or if they are invalid. */
bs_put_options *bs_put_options_new(const char *text, size_t length);

/* The same from the text of bs_put_options_write_moved. */
bs_put_options *bs_put_options_new_moved(const char *text, size_t length);

/* Writes the text, at most BS_MOVED_TEXT_MAX bytes with its NUL, and returns its length. */
enum { BS_MOVED_TEXT_MAX = 80 };
size_t bs_put_options_write_moved(char text[BS_MOVED_TEXT_MAX], const bs_moved_job *of);

#endif
