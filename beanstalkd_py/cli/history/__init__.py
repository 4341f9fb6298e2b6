"""`beanstalkd-py history`: commands for the history store."""
