"""`python -m beanstalkd_py`: the same as the console script."""

from __future__ import annotations

from beanstalkd_py.cli.main import main

if __name__ == "__main__":
    main()
