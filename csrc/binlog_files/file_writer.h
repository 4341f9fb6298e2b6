/* New binlog files of one folder, written from end to end by somebody who serves nobody.
 *
 * A file is complete and synced when the next one is begun, which says how long it is (bs_entry_encode_length), so
 * nothing is filled with zeros ahead. The folder is the
 * caller's to sync.
 */
#ifndef BS_FILE_WRITER_H
#define BS_FILE_WRITER_H

#include <stdint.h>

#include "base/bytes.h"

/* All zeros but dir_fd and fd, which are -1, needs no bs_file_writer_free. */
typedef struct {
    int dir_fd;
    int fd; /* of the file being written, or -1 */
    uint32_t number;     /* of the file being written; the next is the one above */
    int64_t file_size;   /* bytes; a file gets larger only when a single entry is */
    const char *suffix;  /* of the names; the caller's */
    int64_t wall;        /* of such entries */
    uint64_t unused_id;  /* never given to a job, so that an entry can have it that tells how long a file is; 0: none does */
    int64_t before;      /* bytes of the file that was finished last, 0: none was */
    int64_t written;     /* bytes of the file on the way to disk */
    bs_bytes buffer;     /* and those that follow */
} bs_file_writer;

/* Files after binlog.<number>. 0 or a negative errno. */
int bs_file_writer_init(bs_file_writer *files, const char *folder, uint32_t number, const char *suffix, int64_t file_size);

/* Closes what is open and frees all. */
void bs_file_writer_free(bs_file_writer *files);

/* Finds the file for an entry of so many bytes, and makes it if need be; the bytes that this has put before the entry,
 * 0 in a file that was there, or a negative errno. */
int bs_file_writer_begin_entry(bs_file_writer *files, int64_t size);

/* The same, and room for it, to be extended with bs_bytes_extend. NULL with the reason in `error`. */
char *bs_file_writer_reserve(bs_file_writer *files, size_t size, int *error);

/* Adds bytes of an entry for which there is a file. 0 or a negative errno. */
int bs_file_writer_append(bs_file_writer *files, const char *data, size_t length);

/* Writes what is left, syncs and closes the file; then makes one more that says how long it is. The bytes of that one, 0
 * if there was no file, or a negative errno. */
int bs_file_writer_finish(bs_file_writer *files);

#endif
