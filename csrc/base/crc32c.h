/* CRC-32C (Castagnoli: reflected, polynomial 0x1EDC6F41, as in RFC 3720), with SSE 4.2 if the processor has it. */
#ifndef BS_CRC32C_H
#define BS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues from `crc`, the value of the bytes before, 0 at the start. */
uint32_t bs_crc32c(uint32_t crc, const void *data, size_t length);

#endif
