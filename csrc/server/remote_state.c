#include "server/remote_state.h"

#include <stdlib.h>

bs_route *bs_route_of(bs_server *server, bs_session *session)
{
    if (session->route)
        return session->route;
    session->route = calloc(1, sizeof *session->route);
    if (!session->route)
        bs_break_off(server, session);
    return session->route;
}
