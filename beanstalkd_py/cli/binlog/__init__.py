"""`beanstalkd-py binlog`: offline tools for binlog folders."""
