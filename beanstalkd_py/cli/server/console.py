"""`beanstalkd-py console`: the web console for servers elsewhere; `console-user`: a user of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli import output
from beanstalkd_py.cli.connection_options import CONTEXT, CONTROL_OPTION, AddressType
from beanstalkd_py.cli.options import Decorator, file_option, in_order, option

if TYPE_CHECKING:
    from beanstalkd_py.admin.address import Address
    from beanstalkd_py.console.access.accounts import Account

DEFAULT_LISTEN = "127.0.0.1:11381"
ROLES = ("read", "operate", "admin")

access_options: Sequence[Decorator] = (
    file_option("--users", "Users with roles and hashed passwords; lines of console-user."),
    option(
        "--role",
        "What everybody may do on a console of this machine without --users.",
        click.Choice(ROLES),
        default="read",
        show_default=True,
    ),
    option(
        "--host hosts",
        "Another name under which browsers reach the console. May be repeated.",
        metavar="NAME",
        multiple=True,
    ),
    option(
        "--user-header",
        "Trust this header of a proxy for the name of the user, who is in --users.",
        metavar="NAME",
    ),
    option("--https", "Browsers use https, by a proxy.", is_flag=True),
    option("--audit-log", "Append a line for each login and each change.", metavar="FILE"),
)


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
    option("--history", "History store of the first server.", metavar="DIR"),
    option("-b --binlog-dir binlog", "Binlog of the first server, for its checks.", metavar="DIR"),
    *access_options,
)
def console(**settings: Any) -> None:
    """Serve a web console for servers, also for C beanstalkd.

    The console only listens on this machine, unless --users has users, who have to log in.

    \b
    Examples:
      beanstalkd-py console --addr queue-1 --addr queue-2
      beanstalkd-py console --listen 0.0.0.0:11381 --users /etc/queue-users
    """
    from gevent import monkey

    monkey.patch_all()
    from beanstalkd_py.admin.tls_options import TlsOptions
    from beanstalkd_py.console.target import Target

    tls_options = TlsOptions(settings["tls_ca"], None, None)
    addresses: Sequence[Address] = settings["addresses"]
    targets = [Target(address, tls_options=tls_options) for address in addresses]
    names = ("control", "history", "binlog")
    control, history, binlog = (Path(settings[name]) if settings[name] else None for name in names)
    targets[0] = replace(targets[0], control=control, history=history, binlog=binlog)
    _run(targets, settings)


def _run(targets: Sequence[Any], settings: dict[str, Any]) -> None:
    from beanstalkd_py.console.access.accounts import Role
    from beanstalkd_py.console.access.browser_checks import is_loopback, known_hosts
    from beanstalkd_py.console.application import Console, ConsoleOptions
    from beanstalkd_py.console.audit_log import AuditLog
    from beanstalkd_py.console.process import serve_console
    from beanstalkd_py.server.accept.addresses import parse_host_port
    from beanstalkd_py.server.accept.listeners import bind

    address = parse_host_port(settings["listen"], "--listen")
    accounts = _accounts(settings)
    if not accounts and not is_loopback(address.host):
        raise errors.UsageError(
            f"option --listen: {address.host} is reachable from other machines; give --users FILE,"
            " so that users have to log in"
        )
    if settings["user_header"] is not None and not is_loopback(address.host):
        raise errors.UsageError(
            "option --user-header: anybody could send this header; listen on 127.0.0.1, where the"
            " proxy connects"
        )
    options = ConsoleOptions(
        targets,
        known_hosts(address.host, settings["hosts"]),
        accounts,
        Role.named(settings["role"]),
        settings["user_header"],
        settings["https"],
    )
    path = settings["audit_log"]
    try:
        audit = AuditLog(Path(path) if path else None)
    except OSError as error:
        raise errors.UsageError(f"cannot write audit log {path}: {error.strerror}") from error
    listener = bind(address)
    url = f"http://{listener}/"
    serve_console(Console(options, audit), listener.socket, lambda: output.notice(f"serving {url}"))


def _accounts(settings: dict[str, Any]) -> dict[str, Account]:
    from beanstalkd_py.console.access.accounts import load_accounts

    if settings["users"] is None:
        if settings["user_header"] is not None:
            raise errors.UsageError("option --user-header requires --users FILE")
        return {}
    return load_accounts(Path(settings["users"]))


@click.command(context_settings=CONTEXT)
@click.argument("name")
@option("--role", "What the user may do.", click.Choice(ROLES), default="read", show_default=True)
@click.password_option(help="Asked for by default, so that no list of processes shows it.")
def console_user(name: str, role: str, password: str) -> None:
    """Print a line for the users of a console.

    \b
    Example:
      beanstalkd-py console-user ann --role operate >>/etc/queue-users
    """
    from beanstalkd_py.console.access.accounts import Role, account_line

    output.write_line(account_line(name, Role.named(role), password))
