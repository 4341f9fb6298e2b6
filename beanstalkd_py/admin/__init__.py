"""Administration of a running server through the beanstalkd protocol, ours or C's.

Independent of the command line, of output formats and of the server's code.
"""
