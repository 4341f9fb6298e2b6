"""The control socket: admin commands that the beanstalkd protocol lacks."""
