#include "server/remote_state.h"

#include <stdlib.h>

bs_remote *bs_remote_of(bs_server *server, bs_session *session)
{
    if (session->remote)
        return session->remote;
    session->remote = calloc(1, sizeof *session->remote);
    if (!session->remote)
        bs_session_break(server, session);
    return session->remote;
}
