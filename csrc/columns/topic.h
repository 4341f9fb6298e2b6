/* Converts topics to tube names, as beanstalkd_py/history/topics.py defines them. */
#ifndef BC_TOPIC_H
#define BC_TOPIC_H

#include <stddef.h>
#include <stdint.h>

enum { BC_TOPIC_MAX = 255 };

/* Writes the tube's name, at most BC_TOPIC_MAX bytes, and returns its length; -1 for a topic that has no tube. */
int32_t bc_tube_of_topic(const char *topic, size_t length, char *tube);

#endif
