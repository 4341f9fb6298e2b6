"""`beanstalkd-py console`: the web console for servers elsewhere; `console-user`: a user of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py.cli import output
from beanstalkd_py.cli.connection_options import CONTEXT, CONTROL_OPTION, AddressType
from beanstalkd_py.cli.options import file_option, folder_option, in_order, option
from beanstalkd_py.cli.server.console_options import console_options, console_settings
from beanstalkd_py.server.options import CONSOLE_ROLES, DEFAULT_CONSOLE_ROLE

if TYPE_CHECKING:
    from beanstalkd_py.admin.address import Address
    from beanstalkd_py.console.settings import ConsoleSettings
    from beanstalkd_py.console.target import Target

DEFAULT_LISTEN = "127.0.0.1:11381"


@click.command(context_settings=CONTEXT)
@in_order(
    option("--listen", "Address of the console.", default=DEFAULT_LISTEN, show_default=True),
    option(
        "--addr addresses",
        "A server: HOST:PORT, tls://HOST:PORT or unix:PATH. May be repeated.",
        AddressType(),
        multiple=True,
        default=["127.0.0.1:11300"],
        show_default=True,
    ),
    CONTROL_OPTION,
    file_option("--tls-ca", "Trust only servers with certificates signed by these CAs."),
    folder_option("--history", "History store of the first server."),
    folder_option("-b --binlog-dir binlog", "Binlog of the first server, for its checks."),
    console_options(""),
)
def console(**settings: Any) -> None:
    """Serve a web console for servers, also for C beanstalkd.

    The console only listens on this machine, unless --users has users, who have to log in.

    \b
    Examples:
      beanstalkd-py console --addr queue-1 --addr queue-2
      beanstalkd-py console --listen 0.0.0.0:11381 --users /etc/console-users
    """
    checked = console_settings(settings, "listen", "")
    from gevent import monkey

    # os.close would close folders later, and a history has more of them than a process may open.
    monkey.patch_all(os=False, signal=False)
    from beanstalkd_py.admin.tls_options import TlsOptions
    from beanstalkd_py.console.target import Target

    tls_options = TlsOptions(settings["tls_ca"], None, None)
    addresses: Sequence[Address] = settings["addresses"]
    targets = [Target(address, tls_options=tls_options) for address in addresses]
    names = ("control", "history", "binlog")
    control, history, binlog = (Path(settings[name]) if settings[name] else None for name in names)
    targets[0] = replace(targets[0], control=control, history=history, binlog=binlog)
    _run(targets, checked, settings["listen"])


def _run(targets: Sequence[Target], settings: ConsoleSettings, listen: str) -> None:
    from beanstalkd_py.console.process import new_console, serve_console
    from beanstalkd_py.server.accept.addresses import parse_host_port
    from beanstalkd_py.server.accept.listeners import bind

    console = new_console(settings, targets)
    listener = bind(parse_host_port(listen, "--listen"))
    url = f"http://{listener}/"
    serve_console(console, listener.socket, lambda: output.notice(f"serving {url}"))


@click.command(context_settings=CONTEXT)
@click.argument("name")
@option(
    "--role", "What the user may do.", click.Choice(CONSOLE_ROLES), default=DEFAULT_CONSOLE_ROLE
)
@click.password_option(help="Asked for by default, so that no list of processes shows it.")
def console_user(name: str, role: str, password: str) -> None:
    """Print a line for the users of a console.

    \b
    Example:
      beanstalkd-py console-user ann --role operate >>/etc/console-users
    """
    from beanstalkd_py.console.access.accounts import Role, account_line
    from beanstalkd_py.console.settings import require_packages

    require_packages("console-user")
    output.write_line(account_line(name, Role.named(role), password))
