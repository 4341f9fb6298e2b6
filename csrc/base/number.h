/* Decimal numbers as text, faster than snprintf. */
#ifndef BS_NUMBER_H
#define BS_NUMBER_H

#include <stdint.h>

/* Writes up to 20 digits without a terminator; returns their end. */
char *bs_write_number(char *out, uint64_t number);

#endif
