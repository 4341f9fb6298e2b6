/* Writes the binlog files of a new folder sequentially.
 *
 * A file is complete and synced when the next one begins, which records its length (bs_entry_encode_length). No file is
 * preallocated. The caller syncs the folder.
 */
#ifndef BS_FILE_WRITER_H
#define BS_FILE_WRITER_H

#include <stdint.h>

#include "base/bytes.h"

/* The caller sets `wall` and `unused_id`. With dir_fd and fd -1 and the rest zero it needs no bs_file_writer_free. */
typedef struct {
    int dir_fd;
    int fd; /* of the file being written, or -1 */
    uint32_t number;     /* of the file being written */
    int64_t file_size;   /* bytes; a larger entry gets a larger file */
    char suffix[8];      /* of the names */
    int64_t wall;        /* time of entries that belong to no job */
    uint64_t unused_id;  /* the id of length entries, never given to a job */
    int64_t previous_bytes; /* of the previous file, 0: none */
    int64_t written;     /* bytes of the file given to the kernel */
    uint32_t files;      /* created */
    uint64_t bytes;      /* given to the kernel, of all files */
    bs_bytes buffer;     /* the bytes that follow */
} bs_file_writer;

/* Prepares to write files after binlog.<number>. Returns 0 or a negative errno. */
int bs_file_writer_init(bs_file_writer *writer, const char *folder, uint32_t number, const char *suffix,
                        int64_t file_size);

void bs_file_writer_free(bs_file_writer *writer);

/* Chooses the file for an entry of `size` bytes, and creates it if needed. Returns 0 or a negative errno. */
int bs_file_writer_begin_entry(bs_file_writer *writer, int64_t size);

/* Like bs_file_writer_begin_entry, and returns space for the entry, to be extended with bs_bytes_extend. NULL: *error.
 */
char *bs_file_writer_reserve(bs_file_writer *writer, size_t size, int *error);

/* Appends an entry with the highest id. A reader deletes the job that it names. Returns 0 or a negative errno. */
int bs_file_writer_append_last_id(bs_file_writer *writer, uint64_t id);

/* Appends bytes of an entry. Returns 0 or a negative errno. */
int bs_file_writer_append(bs_file_writer *writer, const char *data, size_t length);

/* Syncs and closes the file, if there is one, then writes one more that records its length. Returns 0 or a negative
 * errno. */
int bs_file_writer_finish(bs_file_writer *writer);

#endif
