/* A set of tube policies, compiled so that the policy of a new tube is found without a test of each pattern.
 *
 * A pattern begins with a fixed prefix: all of it before the first *, ? or [. The set has the prefixes in a hash table,
 * and a search looks up the prefixes of the name, one for each length that a pattern has. So its cost grows with the
 * number of different lengths and of patterns with the same prefix, not with the number of patterns.
 */
#ifndef BS_POLICIES_H
#define BS_POLICIES_H

#include "api/policies.h"

typedef struct bs_policies bs_policies;

/* Copies the policies, whose patterns have BS_TUBE_NAME_MAX bytes at most. NULL without memory. */
bs_policies *bs_policies_new(const bs_policy *policies, uint32_t count);

/* NULL is allowed. */
void bs_policies_free(bs_policies *policies);

/* Returns the first policy whose pattern matches, or NULL; the set owns it. */
const bs_policy *bs_policies_find(const bs_policies *policies, const char *name, size_t length);

/* Returns whether a valid pattern matches the whole name. */
bool bs_pattern_matches(const char *pattern, const char *name, size_t length);

#endif
