"""What operators do to a running beanstalkd, ours or C's: through the protocol and nothing else.

Knows no command line and prints nothing; `cli` does. Knows nothing of the server's code.
"""
