"""The files of --tls-cert, --tls-key and --tls-ca.

The parent reads them before it drops privileges and at each reload, and sends their contents to the
TLS processes. Imports `ssl` only when needed, because that import is slow.
"""

from __future__ import annotations

import os
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack

from beanstalkd_py import errors
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.options import ServeOptions

if TYPE_CHECKING:
    import ssl

TICKET_KEY_BYTES = 80
_OPTIONS = ("--tls-cert", "--tls-key", "--tls-ca")


@dataclass(frozen=True, slots=True)
class Certificates:
    """The contents of the files, and a key for the tickets of sessions that use these files.

    Without `ca` clients need no certificates.
    """

    cert: bytes
    key: bytes
    ca: bytes | None
    ticket_key: bytes

    def to_memory_file(self) -> int:
        """Return the descriptor of an anonymous file, which the caller owns. Raises OSError."""
        return _memory_file(msgpack.packb(astuple(self)))

    @classmethod
    def from_memory_file(cls, fd: int) -> Certificates:
        return cls(*msgpack.unpackb(os.pread(fd, os.fstat(fd).st_size, 0)))


def read_certificates(options: ServeOptions) -> Certificates:
    """Read and check the files. Raises UsageError, UnreadableError."""
    if options.tls_cert is None or options.tls_key is None:
        raise errors.UsageError("option --tls-listen requires --tls-cert FILE and --tls-key FILE")
    paths = (options.tls_cert, options.tls_key, options.tls_ca)
    cert, key, ca = (
        None if path is None else _read(option, path)
        for option, path in zip(_OPTIONS, paths, strict=True)
    )
    certificates = Certificates(cert or b"", key or b"", ca, os.urandom(TICKET_KEY_BYTES))
    make_context(certificates)
    return certificates


def make_context(certificates: Certificates) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and later, which verifies clients if there is a CA.

    Raises UsageError.
    """
    import ssl

    from beanstalkd_py.server.tls.session_tickets import server_context

    context = server_context(certificates.ticket_key)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_chain(context, certificates)
    if certificates.ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(cadata=certificates.ca.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
            raise errors.UsageError("option --tls-ca: the file has no PEM certificate") from error
    return context


def _load_chain(context: ssl.SSLContext, certificates: Certificates) -> None:
    """Load certificate and key from memory files, because OpenSSL reads only files."""
    import ssl

    asked = []

    def passphrase() -> str:
        asked.append(True)
        return ""

    cert, key = _memory_file(certificates.cert), _memory_file(certificates.key)
    try:
        context.load_cert_chain(f"/proc/self/fd/{cert}", f"/proc/self/fd/{key}", passphrase)
    except (ssl.SSLError, OSError) as error:
        if asked:
            text = "option --tls-key: the key is encrypted; give one without a passphrase"
        elif getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            text = "options --tls-cert and --tls-key: the key does not match the certificate"
        else:
            text = f"options --tls-cert and --tls-key: no PEM certificate and key ({error})"
        raise errors.UsageError(text) from error
    finally:
        os.close(cert)
        os.close(key)


def _read(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except PermissionError as error:
        raise errors.UnreadableError(f"option {option}: {path}: {error.strerror}") from error
    except OSError as error:
        raise errors.UsageError(f"option {option}: {path}: {error.strerror}") from error


def _memory_file(data: bytes) -> int:
    fd = os.memfd_create("beanstalkd-py-tls", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    return fd


def read_certificates_again(options: ServeOptions, before: ServeOptions) -> Certificates | None:
    """Return the new certificates for a reload, None for those of before. Raises UsageError.

    If the user of -u cannot read the same files as before, the loaded certificates stay.
    """
    try:
        return read_certificates(options)
    except errors.UnreadableError as error:
        if _files(options) != _files(before):
            raise
        LOGGER.error("reload: %s; keeping the loaded certificates", error)
        return None


def _files(options: ServeOptions) -> tuple[str | None, ...]:
    return options.tls_cert, options.tls_key, options.tls_ca
