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

int bs_file_writer_init(bs_file_writer *writer, const char *folder, uint32_t number, const char *suffix,
                        int64_t file_size)
{
    *writer = (bs_file_writer){.fd = -1, .number = number, .file_size = file_size};
    (void)snprintf(writer->suffix, sizeof writer->suffix, "%s", suffix);
    writer->dir_fd = bs_open_folder(folder);
    return writer->dir_fd < 0 ? writer->dir_fd : 0;
}

void bs_file_writer_free(bs_file_writer *writer)
{
    bs_close(writer->fd);
    bs_close(writer->dir_fd);
    bs_bytes_free(&writer->buffer);
    writer->fd = writer->dir_fd = -1;
}

static int flush(bs_file_writer *writer)
{
    size_t length = bs_bytes_length(&writer->buffer);
    int error = bs_io_write_all(BS_IO_WRITE, writer->fd, bs_bytes_data(&writer->buffer), length, writer->written);
    if (error)
        return error;
    writer->written += (int64_t)length;
    writer->bytes += length;
    bs_bytes_clear(&writer->buffer);
    return 0;
}

/* Writes, syncs and closes the file. Returns 0 or a negative errno. */
static int complete(bs_file_writer *writer)
{
    if (writer->fd < 0)
        return 0;
    int error = flush(writer);
    if (!error)
        error = bs_io_datasync(writer->fd);
    if (close(writer->fd) != 0 && !error && errno != EINTR)
        error = -errno;
    writer->fd = -1;
    writer->previous_bytes = writer->written;
    return error;
}

/* Creates the next file. It records the length of the one before if an entry of `size` bytes still fits. */
static int begin_file(bs_file_writer *writer, int64_t size)
{
    const int32_t version = BS_VERSION;
    const int64_t least_size = BS_ENTRY_HEADER + BS_ENTRY_SHORT + size;
    char *space = bs_bytes_reserve(&writer->buffer, BS_ENTRY_HEADER + BS_ENTRY_SHORT);
    if (!space)
        return -ENOMEM;
    writer->fd = bs_io_open(writer->dir_fd, bs_name_of_file(writer->number + 1, writer->suffix).text,
                           O_RDWR | O_CREAT | O_EXCL);
    if (writer->fd < 0)
        return writer->fd;
    memcpy(space, &version, BS_ENTRY_HEADER);
    bs_bytes_extend(&writer->buffer, BS_ENTRY_HEADER);
    const bs_entry_file_length length = {.file = writer->number++, .bytes = (uint64_t)writer->previous_bytes};
    writer->written = 0;
    writer->files++;
    if (writer->previous_bytes != 0 && least_size <= writer->file_size)
        bs_bytes_extend(&writer->buffer, bs_entry_encode_length(space + BS_ENTRY_HEADER, writer->unused_id, &length,
                                                               writer->wall, writer->number));
    return 0;
}

int bs_file_writer_begin_entry(bs_file_writer *writer, int64_t size)
{
    int error = 0;
    int64_t end = writer->written + (int64_t)bs_bytes_length(&writer->buffer);
    if (writer->fd >= 0 && end + size > writer->file_size)
        error = complete(writer);
    else if (bs_bytes_length(&writer->buffer) >= FLUSH_BYTES)
        error = flush(writer);
    return !error && writer->fd < 0 ? begin_file(writer, size) : error;
}

char *bs_file_writer_reserve(bs_file_writer *writer, size_t size, int *error)
{
    *error = bs_file_writer_begin_entry(writer, (int64_t)size);
    char *space = *error ? NULL : bs_bytes_reserve(&writer->buffer, size);
    if (!space && !*error)
        *error = -ENOMEM;
    return space;
}

int bs_file_writer_append_last_id(bs_file_writer *writer, uint64_t id)
{
    int error;
    char *space = bs_file_writer_reserve(writer, BS_ENTRY_SHORT, &error);
    if (space)
        bs_bytes_extend(&writer->buffer, bs_entry_encode_last_id(space, id, writer->wall, writer->number));
    return error;
}

int bs_file_writer_append(bs_file_writer *writer, const char *data, size_t length)
{
    int error = bs_bytes_append(&writer->buffer, data, length);
    return !error && bs_bytes_length(&writer->buffer) >= FLUSH_BYTES ? flush(writer) : error;
}

int bs_file_writer_finish(bs_file_writer *writer)
{
    int error = complete(writer);
    if (error || writer->previous_bytes == 0)
        return error;
    error = begin_file(writer, 0);
    if (!error)
        error = complete(writer);
    writer->previous_bytes = 0;
    return error;
}
