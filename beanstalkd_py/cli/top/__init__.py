"""`beanstalkd-py top`: live statistics of all tubes."""
