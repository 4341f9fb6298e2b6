/* When a session asks to migrate: after a run of replies from one shard. runtime/migration.c moves its connection. */
#ifndef BS_MIGRATION_REQUESTS_H
#define BS_MIGRATION_REQUESTS_H

#include "server/remote_state.h"

/* Counts a complete reply from a shard. */
void bs_migration_count_reply(bs_remote *remote, uint32_t shard);

/* Requests a migration after enough replies in a row, if the session holds no job here. */
void bs_migration_request_if_due(bs_server *server, bs_session *session);

/* Ends a migration that was refused; the session asks again later. */
void bs_migration_refused(bs_session *session);

#endif
