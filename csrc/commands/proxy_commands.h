/* Lines that only proxies accept; remote_commands.h lists them. */
#ifndef BS_PROXY_COMMANDS_H
#define BS_PROXY_COMMANDS_H

#include "server/server_state.h"

/* Returns false if the line must wait, and then the session is stalled. */
bool bs_proxy_execute(bs_server *server, bs_session *session, const char *line, size_t length, bs_now now);

#endif
