"""A log of messages with queues and an index, in the files of Apache RocketMQ.

`beanstalkd_py.history.store` is the way in. Nothing here knows of jobs, of the server or of gevent.
"""
