"""Address and connection of the server of a sink. Imports nothing of Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from beanstalkd_py import errors
from beanstalkd_py.admin.address import DEFAULT_ADDRESS, Address, parse_address
from beanstalkd_py.admin.connection import Connection, connect
from beanstalkd_py.admin.tls_options import TlsOptions
from beanstalkd_py.admin.tube_name import TUBE_NAMES, is_tube_name
from beanstalkd_py.pipeline.sources.options import Options

DEFAULT_TIMEOUT_S = 30.0
"""Longer than the default of the CLI: puts that time out are put twice."""
TLS_OPTIONS = ("tlsCa", "tlsCert", "tlsKey")
OPTIONS = ("addr", "timeout", *TLS_OPTIONS)


@dataclass(frozen=True, slots=True)
class TubeServer:
    address: Address
    timeout_s: float = DEFAULT_TIMEOUT_S
    tls_options: TlsOptions = field(default_factory=TlsOptions)

    @classmethod
    def of(cls, options: Options) -> TubeServer:
        tls_options = TlsOptions(
            options.text("tlsCa"), options.text("tlsCert"), options.text("tlsKey")
        )
        if tls_options.key is not None and tls_options.cert is None:
            raise errors.PipelineUsageError("tlsKey needs tlsCert; give both")
        timeout_s = options.seconds("timeout", DEFAULT_TIMEOUT_S)
        address = address_of(options.text("addr") or DEFAULT_ADDRESS)
        for name in TLS_OPTIONS:
            if options.text(name) is not None:
                check_tls(address, name)
        return cls(address, timeout_s, tls_options)

    @contextlib.contextmanager
    def connect(self) -> Iterator[Connection]:
        try:
            with connect(self.address, self.timeout_s, self.tls_options) as connection:
                yield connection
        except errors.ToolUsageError as error:
            raise errors.PipelineUsageError(str(error)) from error


def address_of(text: str) -> Address:
    """Parse HOST:PORT, tls://HOST:PORT or unix:PATH. Raises PipelineUsageError."""
    try:
        return parse_address(text)
    except errors.ToolUsageError as error:
        raise errors.PipelineUsageError(str(error)) from error


def check_tls(address: Address, what: str) -> None:
    """Raise PipelineUsageError about the TLS option `what` if the address is without TLS."""
    if not address.tls:
        example = "tls://HOST:PORT" if address.path else f"tls://{address}"
        raise errors.PipelineUsageError(
            f"{what} is for TLS, and addr {address} is without; give {example}, or leave {what} out"
        )


def check_tube(name: str, what: str) -> str:
    """Return the name. Raises PipelineUsageError about `what` for an invalid one."""
    if not is_tube_name(name):
        shown = repr(name if len(name) <= 60 else name[:57] + "...")
        raise errors.PipelineUsageError(f"{what}: {shown} is not a tube name; give {TUBE_NAMES}")
    return name
