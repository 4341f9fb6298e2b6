/* Finds the entries of one binlog file, and decides which bytes are valid.
 *
 * Recovery (csrc/recovery), the tools (reader.h), the history and the columns use it, so that they agree on every
 * file. A window limits the memory, whatever the size of files and bodies. A callback looks up the earlier entries of a
 * job.
 */
#ifndef BS_SCAN_H
#define BS_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "binlog_files/entry.h"

/* Sets `name`, `name_length` and `body_size` of a job's last full entry, valid until the next call, or with `last` the
 * `crc` of its last entry. Returns false if there is no such job. */
typedef bool bs_scan_find_job(void *context, uint64_t id, bool last, bs_entry *entry);

typedef struct {
    bs_scan_find_job *find_job;
    void *context; /* of find_job */
    int fd; /* the caller's; -1: the window is the caller's and contains the whole file */
    uint32_t number;
    int version;
    bool is_ours;       /* a sound entry has the number of this file */
    bool writer_known;  /* `is_ours` is final: at the first unsound entry the scan has searched ahead */
    uint64_t length; /* of the file, bytes */
    uint64_t offset; /* of the next entry */
    uint64_t end;    /* behind the last valid entry */
    int64_t data_end; /* behind the last byte that is not zero; negative: unknown */

    char *window;
    uint64_t window_at;
    size_t window_length;
    size_t window_capacity;

    uint64_t at;       /* start of the last result of bs_scan_next */
    bs_entry entry;    /* valid until the next call; without `body` if that is larger than the window */
    const char *fault; /* why the entry is invalid */
    uint64_t next;     /* where reading continues after a fault; `length`: nowhere */
    bool torn;         /* the fault is an entry at the end that a crash cut off */
    bool cut;          /* the fault is that the file ends before the entry does */
    char read_error[96]; /* the fault after bs_scan_set_unreadable */
    char name[BS_TUBE_NAME_MAX + 1]; /* of an entry that is larger than the window */
} bs_scan;

enum { BS_SCAN_EMPTY, BS_SCAN_FILE, BS_SCAN_VERSION };
enum { BS_SCAN_END, BS_SCAN_ENTRY, BS_SCAN_FAULT };

/* Allocates a window of at least 1024 bytes. Returns 0 or -ENOMEM. A zero-initialized scan needs no bs_scan_free. */
int bs_scan_init(bs_scan *scan, size_t window_bytes);
void bs_scan_free(bs_scan *scan);

/* Begins a file, given by a descriptor or by all of its bytes; of a file that is being written only the first `length`
 * bytes are read (UINT64_MAX: all). Returns BS_SCAN_EMPTY if nothing was written to it, BS_SCAN_VERSION if its
 * `version` is not supported, BS_SCAN_FILE, or a negative errno. */
int bs_scan_file(bs_scan *scan, int fd, uint32_t number, uint64_t length);
int bs_scan_bytes(bs_scan *scan, char *data, size_t length, uint32_t number);

/* Changes `length` of bs_scan_file; the bytes before it have not changed. Returns 0 or a negative errno. */
int bs_scan_extend(bs_scan *scan, uint64_t length);

/* Finds the next entry. Returns BS_SCAN_ENTRY and advances, BS_SCAN_FAULT without advancing, BS_SCAN_END, or a negative
 * errno if the file cannot be read at `offset`. */
int bs_scan_next(bs_scan *scan);

/* Turns a negative errno of bs_scan_next into a fault that extends to the end of the file. */
void bs_scan_set_unreadable(bs_scan *scan, int error);

/* After a fault: continues at `next`. */
void bs_scan_skip(bs_scan *scan);

/* Reads the size and all bytes again of a file that is being written. Returns 0 or a negative errno. */
int bs_scan_refresh(bs_scan *scan);

/* Like bs_entry_decode at an offset, for entries of any size; `*error` is 0 or a negative errno. */
int64_t bs_scan_check(bs_scan *scan, uint64_t offset, bs_entry *entry, int *error);

/* Returns whether only zeros follow an offset; false with `*error` if the file cannot be read. */
bool bs_scan_rest_is_zero(bs_scan *scan, uint64_t offset, int *error);

/* Returns the offset behind the last byte that is not zero in the first `length` bytes of a file, or a negative errno.
 * Holes are not read. */
int64_t bs_data_end(int fd, uint64_t length);

/* Returns bytes at an offset: at least `wanted`, if window and file have so many; their number in `*got`. NULL: *error.
 */
const char *bs_scan_fetch(bs_scan *scan, uint64_t offset, size_t wanted, size_t *got, int *error);

/* Copies the first `length` bytes of an entry's body to `to`, from the file if they are not in memory. `offset` is that
 * of the entry. Returns 0 or a negative errno. */
int bs_scan_copy_body(const bs_scan *scan, uint64_t offset, const bs_entry *entry, size_t length, char *to);

#endif
