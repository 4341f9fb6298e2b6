"""`beanstalkd-py top`: a live table of tubes."""
