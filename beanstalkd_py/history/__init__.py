"""A message store in Apache RocketMQ's file format: commit log, consume queues and index.

`beanstalkd_py.history.store` is the public entry point. The package imports neither the server nor
gevent.
"""
