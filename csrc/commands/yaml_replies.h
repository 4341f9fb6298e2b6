/* The replies that are YAML: stats-job, stats-tube and the lists of tubes. `stats` itself is Python's. */
#ifndef BS_REPORT_H
#define BS_REPORT_H

#include "server/server_state.h"

void bs_report_job(bs_server *server, bs_session *session, const bs_job *job, bs_now now);
void bs_report_tube(bs_server *server, bs_session *session, const bs_tube *tube, bs_now now);
void bs_report_tubes(bs_server *server, bs_session *session);
void bs_report_watched(bs_server *server, bs_session *session);

#endif
