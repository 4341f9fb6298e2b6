/* How long a reply is held back until the binlog entries it depends on are synced. */
#ifndef BS_HOLD_H
#define BS_HOLD_H

typedef enum { BS_HOLD_NONE, BS_HOLD_SYNCING, BS_HOLD_WRITTEN } bs_hold;

#endif
