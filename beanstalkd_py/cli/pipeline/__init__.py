"""`beanstalkd-py pipeline`: Spark jobs on binlogs and history stores."""
