#include "base/number.h"

char *bs_write_number(char *out, uint64_t number)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                                "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                                "8081828384858687888990919293949596979899";
    char digits[20];
    char *at = digits + sizeof digits;
    for (; number >= 100; number /= 100)
        memcpy(at -= 2, pairs + number % 100 * 2, 2);
    if (number >= 10)
        memcpy(at -= 2, pairs + number * 2, 2);
    else
        *--at = (char)('0' + number);
    return bs_write_bytes(out, at, (size_t)(digits + sizeof digits - at));
}
