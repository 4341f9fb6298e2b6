"""`beanstalkd-py history`: commands on history stores."""
