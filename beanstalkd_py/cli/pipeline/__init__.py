"""`beanstalkd-py pipeline`: Spark jobs over binlogs and history stores."""
