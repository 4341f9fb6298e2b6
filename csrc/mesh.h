/* The core's side of the mesh between workers: what core.h says under "other workers", "claims" and "moving". */
#ifndef BS_MESH_H
#define BS_MESH_H

#include "loop.h"

/* Tags the sockets to other workers in the epoll set: above all descriptors, below all sessions. */
#define BS_PEER_TAG (UINT64_C(1) << 31)

/* Is there anything to take with bs_core_next_mail? */
bool bs_core_has_mail(const bs_core *core);

/* Mails what a proxy has to say and may; ends one that has failed. */
void bs_proxy_flush(bs_core *core, bs_session *session, bs_now now);

#endif
