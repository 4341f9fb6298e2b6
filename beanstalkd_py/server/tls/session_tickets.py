"""One key for the session tickets of all TLS processes, so that each resumes all sessions.

Python's ssl cannot set the key, so this module calls OpenSSL. It gets a context's address from
OpenSSL's callback for new contexts, because the layout of Python's object is private.
"""

from __future__ import annotations

import _ssl
import ctypes
import functools
import ssl
from collections.abc import Callable

from beanstalkd_py.server.logging.setup import LOGGER

# From openssl/crypto.h and openssl/ssl.h.
_CRYPTO_EX_INDEX_SSL_CTX = 1
_SSL_CTRL_SET_TLSEXT_TICKET_KEYS = 59
_OnNew = ctypes.CFUNCTYPE(
    *(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    *(ctypes.c_int, ctypes.c_long, ctypes.c_void_p),
)

_created: list[int] = []
"""Addresses of new contexts, which OpenSSL's callback appends."""
_on_new = _OnNew(lambda context, *_: _created.append(context))
"""Never freed, because OpenSSL keeps a pointer to it."""


def server_context(ticket_key: bytes) -> ssl.SSLContext:
    """Return a context for a server that encrypts tickets with the key.

    If OpenSSL is not accessible, the context has a key of its own, and the reason is logged.
    """
    try:
        set_key = _key_setter()
        _created.clear()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if not _created:
            raise OSError("Python's ssl uses another copy of OpenSSL")
        set_key(_created[-1], ticket_key)
    except (AttributeError, OSError) as error:
        LOGGER.info("TLS: sessions resume only at the process that began them: %s", error)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    return context


@functools.cache
def _key_setter() -> Callable[[int, bytes], None]:
    """Return a function of a context's address and the key.

    Raises AttributeError, OSError if the library that `ssl` uses is not accessible.
    """
    library = ctypes.CDLL(getattr(_ssl, "__file__", None))
    control, register = library.SSL_CTX_ctrl, library.CRYPTO_get_ex_new_index
    control.restype = ctypes.c_long
    control.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_char_p
    register.argtypes = (
        *(ctypes.c_int, ctypes.c_long, ctypes.c_void_p),
        *(_OnNew, ctypes.c_void_p, ctypes.c_void_p),
    )
    if register(_CRYPTO_EX_INDEX_SSL_CTX, 0, None, _on_new, None, None) < 0:
        raise OSError("OpenSSL accepts no callback")

    def set_key(context: int, key: bytes) -> None:
        if control(context, _SSL_CTRL_SET_TLSEXT_TICKET_KEYS, len(key), key) != 1:
            raise OSError(f"OpenSSL does not accept a key of {len(key)} bytes")

    return set_key
