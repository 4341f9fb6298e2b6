#include "jobs/policies.h"

#include <endian.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/tube_name.h"

#define NONE UINT32_MAX
#define HASH_FACTOR UINT64_C(0x9e3779b97f4a7c15)

enum { LEAST_SLOTS = 16, BITS = 64, WORD = sizeof(uint64_t) };

typedef struct {
    bs_policy policy;
    uint32_t next;   /* the next one with the same prefix, or NONE */
    uint32_t prefix; /* length of the fixed prefix */
} compiled_policy;

struct bs_policies {
    uint32_t count;
    uint32_t length_count;
    uint32_t slot_count; /* a power of two */
    uint32_t *slots;     /* the first policy with a prefix, or NONE: open addressing */
    uint8_t lengths[BS_TUBE_NAME_MAX + 1]; /* of the fixed prefixes, rising */
    compiled_policy all[];
};

/* --- patterns --------------------------------------------------------------------------------------------- */

/* Returns the pattern after the set, or NULL if the character is not in it. `set` follows the bracket. */
static const char *match_set(const char *set, char character)
{
    const bool negated = *set == '!';
    bool found = false;
    set += negated;
    for (; *set && *set != ']'; set++) {
        if (set[1] == '-' && set[2] && set[2] != ']') {
            found = found || (*set <= character && character <= set[2]);
            set += 2;
        } else {
            found = found || *set == character;
        }
    }
    return found != negated ? set + (*set == ']') : NULL;
}

/* Returns the pattern after its first element, or NULL if that does not match the character. */
static const char *match_element(const char *pattern, char character)
{
    if (*pattern == '[')
        return match_set(pattern + 1, character);
    return *pattern && (*pattern == '?' || *pattern == character) ? pattern + 1 : NULL;
}

bool bs_pattern_matches(const char *pattern, const char *name, size_t length)
{
    const char *end = name + length;
    const char *after_star = NULL; /* the last * of the pattern, and where its match ends so far */
    const char *star_end = NULL;
    for (;;) {
        if (*pattern == '*') {
            after_star = ++pattern;
            star_end = name;
            if (!*pattern)
                return true;
            continue;
        }
        const char *next = name < end ? match_element(pattern, *name) : NULL;
        if (next) {
            pattern = next;
            name++;
        } else if (name == end && !*pattern) {
            return true;
        } else if (!after_star || star_end == end) {
            return false;
        } else {
            pattern = after_star;
            name = ++star_end;
        }
    }
}

/* --- hashes of prefixes ----------------------------------------------------------------------------------- */

/* The hashes of the prefixes of one name, for rising lengths. */
typedef struct {
    char name[BS_TUBE_NAME_MAX + WORD]; /* zeros follow, so that whole words can be read */
    uint32_t hashed;                    /* bytes of whole words that `words` has */
    uint64_t words;
} prefix_hasher;

static uint64_t mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * HASH_FACTOR;
    return hash ^ hash >> BITS / 2;
}

static uint64_t word_at(const prefix_hasher *hasher, uint32_t at)
{
    uint64_t word;
    memcpy(&word, hasher->name + at, WORD);
    return word;
}

static void begin_prefixes(prefix_hasher *hasher, const char *name, size_t length)
{
    memcpy(hasher->name, name, length);
    memset(hasher->name + length, 0, WORD);
    hasher->hashed = 0;
    hasher->words = 0;
}

static uint64_t hash_of_prefix(prefix_hasher *hasher, uint32_t length)
{
    for (; hasher->hashed + WORD <= length; hasher->hashed += WORD)
        hasher->words = mixed(hasher->words, word_at(hasher, hasher->hashed));
    const uint32_t rest = length - hasher->hashed;
    const uint64_t mask = (UINT64_C(1) << rest * CHAR_BIT) - 1; /* the first bytes of a little-endian word */
    return mixed(hasher->words + length, le64toh(word_at(hasher, hasher->hashed)) & mask);
}

/* --- the set ---------------------------------------------------------------------------------------------- */

/* Returns the slot of this prefix, or the free slot for it. */
static uint32_t slot_of(const bs_policies *policies, uint64_t hash, const char *name, uint32_t length)
{
    uint32_t slot = (uint32_t)hash & (policies->slot_count - 1);
    for (;; slot = (slot + 1) & (policies->slot_count - 1)) {
        const uint32_t first = policies->slots[slot];
        if (first == NONE || (policies->all[first].prefix == length &&
                              memcmp(policies->all[first].policy.pattern, name, length) == 0))
            return slot;
    }
}

static void add_length(bs_policies *policies, uint8_t length)
{
    uint32_t at = 0;
    while (at < policies->length_count && policies->lengths[at] < length)
        at++;
    if (at < policies->length_count && policies->lengths[at] == length)
        return;
    memmove(&policies->lengths[at + 1], &policies->lengths[at], policies->length_count - at);
    policies->lengths[at] = length;
    policies->length_count++;
}

/* Adds the policy at `index`; those before it are added. False without memory. */
static bool add(bs_policies *policies, uint32_t index, const bs_policy *policy)
{
    char *pattern = strdup(policy->pattern);
    char *move_to = policy->move_to ? strdup(policy->move_to) : NULL;
    if (!pattern || (policy->move_to && !move_to)) {
        free(pattern);
        free(move_to);
        return false;
    }
    const uint32_t prefix = (uint32_t)strcspn(pattern, "*?[");
    compiled_policy *added = &policies->all[index];
    *added = (compiled_policy){.policy = *policy, .next = NONE, .prefix = prefix};
    added->policy.pattern = pattern;
    added->policy.move_to = move_to;
    policies->count++;
    add_length(policies, (uint8_t)prefix);
    prefix_hasher hasher;
    begin_prefixes(&hasher, pattern, prefix);
    uint32_t *link = &policies->slots[slot_of(policies, hash_of_prefix(&hasher, prefix), pattern, prefix)];
    while (*link != NONE)
        link = &policies->all[*link].next;
    *link = index;
    return true;
}

bs_policies *bs_policies_new(const bs_policy *policies, uint32_t count)
{
    bs_policies *created = calloc(1, sizeof *created + count * sizeof *created->all);
    if (!created)
        return NULL;
    created->slot_count = LEAST_SLOTS;
    while (created->slot_count / 2 < count)
        created->slot_count *= 2;
    created->slots = malloc(created->slot_count * sizeof *created->slots);
    for (uint32_t i = 0; created->slots && i < created->slot_count; i++)
        created->slots[i] = NONE;
    bool added = created->slots;
    for (uint32_t i = 0; added && i < count; i++)
        added = add(created, i, &policies[i]);
    if (added)
        return created;
    bs_policies_free(created);
    return NULL;
}

void bs_policies_free(bs_policies *policies)
{
    if (!policies)
        return;
    for (uint32_t i = 0; i < policies->count; i++) {
        free((char *)policies->all[i].policy.pattern);
        free((char *)policies->all[i].policy.move_to);
    }
    free(policies->slots);
    free(policies);
}

/* Returns the first policy with this prefix that matches, if it precedes `best`, else `best`. */
static uint32_t better_match(const bs_policies *policies, uint32_t best, uint64_t hash, uint32_t prefix,
                             const char *name, size_t length)
{
    for (uint32_t i = policies->slots[slot_of(policies, hash, name, prefix)]; i < best; i = policies->all[i].next)
        if (bs_pattern_matches(policies->all[i].policy.pattern + prefix, name + prefix, length - prefix))
            return i;
    return best;
}

const bs_policy *bs_policies_find(const bs_policies *policies, const char *name, size_t length)
{
    uint32_t best = NONE;
    prefix_hasher hasher;
    begin_prefixes(&hasher, name, length);
    for (uint32_t i = 0; i < policies->length_count && policies->lengths[i] <= length; i++) {
        const uint32_t prefix = policies->lengths[i];
        best = better_match(policies, best, hash_of_prefix(&hasher, prefix), prefix, name, length);
    }
    return best == NONE ? NULL : &policies->all[best].policy;
}
