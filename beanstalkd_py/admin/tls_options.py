"""TLS settings of a client: trusted CAs, and the client's own certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beanstalkd_py import errors

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True)
class TlsOptions:
    """Paths of PEM files: trusted CAs (None: the system's), client certificate, and its key."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return an SSL context with these settings. Raises ToolUsageError."""
        import ssl

        if self.key is not None and self.cert is None:
            raise errors.ToolUsageError("option --tls-key requires --tls-cert FILE")
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise _unusable("--tls-ca", self.ca, error) from error
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key)
            except OSError as error:
                raise _unusable("--tls-cert", self.cert, error) from error
        return context


def _unusable(option: str, path: str | None, error: OSError) -> errors.ToolUsageError:
    return errors.ToolUsageError(f"option {option}: {path}: {error.strerror or error}")
