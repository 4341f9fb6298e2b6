/* The entries of one binlog file, one after another, and what is wrong between them.
 *
 * The one judge of what is to be believed, for the server's start (recover.h) and for the tools (reader.h), so that
 * both say the same of the same file. It sees the file through a window, so that a file of any size, with bodies of any
 * size, takes no more memory than that. It knows neither queue nor folder; of jobs it asks what it must know
 * (bs_scan_jobs).
 */
#ifndef BS_SCAN_H
#define BS_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "binlog_files/entry.h"

/* What does not change while a job lives. */
typedef struct {
    const char *tube; /* `tube_length` bytes, good until the next question */
    uint32_t tube_length;
    uint32_t body_size; /* bytes */
} bs_scan_job;

/* What is known of a job from the entries before. False: there is no such job. */
typedef struct {
    void *context;
    bool (*find)(void *context, uint64_t id, bs_scan_job *job);
    bool (*last_crc)(void *context, uint64_t id, uint32_t *crc); /* the checksum field of its last entry */
} bs_scan_jobs;

typedef struct {
    bs_scan_jobs jobs;
    int fd; /* the caller's; -1: the window is the whole file, and the caller's, too */
    uint32_t number;
    int version;
    bool ours;       /* some entry here is sound and says it was written to this file */
    bool judged;     /* `ours` is known: an entry that was not sound has made the scan look ahead for one that is */
    uint64_t length; /* of the file, bytes */
    uint64_t offset; /* of what comes next */
    uint64_t end;    /* behind the last entry that was believed */
    int64_t data_end; /* behind the last byte that is not zero; -1: not known yet */

    char *window;
    uint64_t window_at;
    size_t window_length;
    size_t window_capacity;

    uint64_t at;       /* what bs_scan_next has found begins here */
    bs_entry entry;    /* good until the next call; without `body` if that is larger than the window */
    const char *fault; /* why it cannot be used */
    uint64_t next;     /* where reading goes on after a fault; `length`: nowhere */
    bool torn;         /* the fault is what a crash leaves of an entry being written at the end */
    bool cut;          /* the fault is that the file ends before the entry does */
    char name[BS_TUBE_NAME_MAX + 1]; /* of an entry that is larger than the window */
} bs_scan;

enum { BS_SCAN_EMPTY, BS_SCAN_FILE, BS_SCAN_VERSION };
enum { BS_SCAN_END, BS_SCAN_ENTRY, BS_SCAN_FAULT };

/* Makes room for a window of so many bytes, at least 1024. 0 or -ENOMEM. All zeros needs no bs_scan_free. */
int bs_scan_init(bs_scan *scan, size_t window_bytes);
void bs_scan_free(bs_scan *scan);

/* Begins a file, by its descriptor or by all of its bytes. BS_SCAN_EMPTY: nothing was written to it; BS_SCAN_VERSION:
 * it is of none that can be read (`version`); else BS_SCAN_FILE, or a negative errno. */
int bs_scan_file(bs_scan *scan, int fd, uint32_t number);
int bs_scan_bytes(bs_scan *scan, char *data, size_t length, uint32_t number);

/* As bs_scan_file of a file that somebody writes to: of its bytes the first `length` at most are looked at. Later more
 * of them, or fewer, when those before both have not changed: 0 or a negative errno. */
int bs_scan_part(bs_scan *scan, int fd, uint32_t number, uint64_t length);
int bs_scan_extend(bs_scan *scan, uint64_t length);

/* Finds what comes next: BS_SCAN_ENTRY and goes behind it; BS_SCAN_FAULT and stays; BS_SCAN_END; or a negative errno
 * when the file cannot be read at `offset`. */
int bs_scan_next(bs_scan *scan);

/* After a fault: goes on at `next`. */
void bs_scan_skip(bs_scan *scan);

/* Looks at the file anew, which somebody writes to. 0 or a negative errno. */
int bs_scan_refresh(bs_scan *scan);

/* As bs_entry_decode at an offset, whatever the size of the entry; `*error` is 0, or a negative errno. */
int64_t bs_scan_check(bs_scan *scan, uint64_t offset, bs_entry *entry, int *error);

/* Whether there is nothing but zeros from an offset on; false with `*error` when the file cannot be read. */
bool bs_scan_rest_is_zero(bs_scan *scan, uint64_t offset, int *error);

/* Bytes at an offset: at least `wanted`, if the window and the file have so many; how many in `*got`. NULL: *error. */
const char *bs_scan_fetch(bs_scan *scan, uint64_t offset, size_t wanted, size_t *got, int *error);

#endif
