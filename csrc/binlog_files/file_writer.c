#include "binlog_files/file_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/folder.h"
#include "binlog_files/entry.h"

enum { FLUSH_BYTES = 256 * 1024 };

int bs_file_writer_init(bs_file_writer *files, const char *folder, uint32_t number, const char *suffix,
                        int64_t file_size)
{
    *files = (bs_file_writer){.fd = -1, .number = number, .file_size = file_size};
    (void)snprintf(files->suffix, sizeof files->suffix, "%s", suffix);
    files->dir_fd = bs_open_folder(folder);
    return files->dir_fd < 0 ? files->dir_fd : 0;
}

void bs_file_writer_free(bs_file_writer *files)
{
    bs_close(files->fd);
    bs_close(files->dir_fd);
    bs_bytes_free(&files->buffer);
    files->fd = files->dir_fd = -1;
}

static int flush(bs_file_writer *files)
{
    size_t length = bs_bytes_length(&files->buffer);
    int error = bs_io_write_all(BS_IO_WRITE, files->fd, bs_bytes_data(&files->buffer), length, files->written);
    if (error)
        return error;
    files->written += (int64_t)length;
    files->bytes += length;
    bs_bytes_clear(&files->buffer);
    return 0;
}

/* Writes, syncs and closes the file. Returns 0 or a negative errno. */
static int complete(bs_file_writer *files)
{
    if (files->fd < 0)
        return 0;
    int error = flush(files);
    if (!error)
        error = bs_io_datasync(files->fd);
    if (close(files->fd) != 0 && !error && errno != EINTR)
        error = -errno;
    files->fd = -1;
    files->before = files->written;
    return error;
}

/* Creates the next file. It records the length of the one before if an entry of `size` bytes still fits. */
static int begin_file(bs_file_writer *files, int64_t size)
{
    const int32_t version = BS_VERSION;
    const int64_t least_size = BS_ENTRY_HEADER + BS_ENTRY_SHORT + size;
    char *space = bs_bytes_reserve(&files->buffer, BS_ENTRY_HEADER + BS_ENTRY_SHORT);
    if (!space)
        return -ENOMEM;
    files->fd = bs_io_open(files->dir_fd, bs_name_of_file(files->number + 1, files->suffix).text,
                           O_RDWR | O_CREAT | O_EXCL);
    if (files->fd < 0)
        return files->fd;
    memcpy(space, &version, BS_ENTRY_HEADER);
    bs_bytes_extend(&files->buffer, BS_ENTRY_HEADER);
    const bs_entry_file_length length = {.file = files->number++, .bytes = (uint64_t)files->before};
    files->written = 0;
    files->files++;
    if (files->before != 0 && least_size <= files->file_size)
        bs_bytes_extend(&files->buffer, bs_entry_encode_length(space + BS_ENTRY_HEADER, files->unused_id, &length,
                                                               files->wall, files->number));
    return 0;
}

int bs_file_writer_begin_entry(bs_file_writer *files, int64_t size)
{
    int error = 0;
    int64_t end = files->written + (int64_t)bs_bytes_length(&files->buffer);
    if (files->fd >= 0 && end + size > files->file_size)
        error = complete(files);
    else if (bs_bytes_length(&files->buffer) >= FLUSH_BYTES)
        error = flush(files);
    return !error && files->fd < 0 ? begin_file(files, size) : error;
}

char *bs_file_writer_reserve(bs_file_writer *files, size_t size, int *error)
{
    *error = bs_file_writer_begin_entry(files, (int64_t)size);
    char *space = *error ? NULL : bs_bytes_reserve(&files->buffer, size);
    if (!space && !*error)
        *error = -ENOMEM;
    return space;
}

int bs_file_writer_append_last_id(bs_file_writer *files, uint64_t id)
{
    int error;
    char *space = bs_file_writer_reserve(files, BS_ENTRY_SHORT, &error);
    if (space)
        bs_bytes_extend(&files->buffer, bs_entry_encode_last_id(space, id, files->wall, files->number));
    return error;
}

int bs_file_writer_append(bs_file_writer *files, const char *data, size_t length)
{
    int error = bs_bytes_append(&files->buffer, data, length);
    return !error && bs_bytes_length(&files->buffer) >= FLUSH_BYTES ? flush(files) : error;
}

int bs_file_writer_finish(bs_file_writer *files)
{
    int error = complete(files);
    if (error || files->before == 0)
        return error;
    error = begin_file(files, 0);
    if (!error)
        error = complete(files);
    files->before = 0;
    return error;
}
