/* The reply to list-jobs: a page of the jobs of a tube, by id. */
#ifndef BS_LIST_JOBS_H
#define BS_LIST_JOBS_H

#include "protocol/parser.h"
#include "server/server_state.h"

void bs_reply_list_jobs(bs_server *server, bs_session *session, const bs_command *command, bs_now now);

#endif
