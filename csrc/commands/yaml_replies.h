/* Replies in YAML: stats-job, stats-tube and the lists of tubes. Python makes that of `stats`. */
#ifndef BS_YAML_REPLIES_H
#define BS_YAML_REPLIES_H

#include "server/server_state.h"

void bs_reply_stats_job(bs_server *server, bs_session *session, const bs_job *job, bs_now now);
void bs_reply_stats_tube(bs_server *server, bs_session *session, const bs_tube *tube, bs_now now);
void bs_reply_list_tubes(bs_server *server, bs_session *session);
void bs_reply_list_watched(bs_server *server, bs_session *session);

#endif
