/* The tube whose messages a topic has: names of tubes as topics are those of beanstalkd_py/history/topics.py. */
#ifndef BC_TOPIC_H
#define BC_TOPIC_H

#include <stddef.h>
#include <stdint.h>

enum { BC_TOPIC_MAX = 255 };

/* The tube's name, at most BC_TOPIC_MAX bytes, and its length; -1 if the topic does not add_event. */
int32_t bc_tube_of_topic(const char *topic, size_t length, char *tube);

#endif
