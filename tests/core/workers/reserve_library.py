"""csrc/shards/multi_shard_reserve.c, compiled with requests that the tests implement."""

from __future__ import annotations

import functools
import importlib.util
import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import cffi

CSRC = Path(__file__).parents[3] / "csrc"
CALL = "struct bs_reserve_call { void *requests; };"
REQUESTS = "/* --- requests;"
EVENTS = "/* --- events:"
TOKEN_BYTES = 8


class Head(NamedTuple):
    """bs_head: `id` is 0 without a job."""

    id: int = 0
    pri: int = 0
    holds: int = 0
    soon: bool = False


class Requests(Protocol):
    """The requests of multi_shard_reserve.h for one session; `head` returns None if it is asked."""

    def now(self) -> int: ...
    def is_up(self, shard: int) -> bool: ...
    def head(self, shard: int, token: int, exact: bool) -> Head | None: ...
    def claim(self, shard: int, token: int, pri: int) -> None: ...
    def wait(self, shard: int, token: int, until: int) -> None: ...
    def take(self, shard: int, token: int) -> None: ...
    def cancel(self, shard: int, token: int, confirm: bool) -> None: ...
    def whole(self, shard: int, token: int, poll: bool) -> None: ...
    def reply(self, reply: bytes) -> None: ...
    def withdraw(self) -> None: ...


def _declarations() -> tuple[str, str]:
    """Return the C declarations of types and events, and those of the requests."""
    words = (CSRC / "shards/shard_set.h").read_text()
    header = (CSRC / "shards/multi_shard_reserve.h").read_text()
    text = re.sub(r"^#.*$", "", header, flags=re.MULTILINE)
    types, rest = text.split(REQUESTS)
    requests, events = rest.split(EVENTS)
    requests = requests.split("*/", 1)[1]
    forward = re.search(r"typedef struct bs_reserve_call bs_reserve_call;.*", requests)
    assert forward
    shard_set = re.search(r"enum \{ BS_SHARD_WORDS.*?\} bs_shard_set;", words, re.DOTALL)
    assert shard_set
    everything = f"{shard_set[0]}\n{types}\n{forward[0]}\n{CALL}\n{events.split('*/', 1)[1]}"
    return everything, requests.replace(forward[0], "")


@functools.cache
def _library() -> tuple[Any, Any]:
    types, requests = _declarations()
    builder = cffi.FFI()
    builder.cdef(types)
    builder.cdef(f'extern "Python+C" {{ {requests} }}')
    builder.set_source(
        "_multi_shard_reserve",
        f'#include "shards/multi_shard_reserve.h"\n{CALL}',
        sources=[str(CSRC / "shards/multi_shard_reserve.c")],
        include_dirs=[str(CSRC)],
    )
    with tempfile.TemporaryDirectory() as folder:
        spec = importlib.util.spec_from_file_location(
            "_multi_shard_reserve", builder.compile(tmpdir=folder)
        )
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    for name in ("claim", "wait", "take", "cancel", "whole"):
        _implement(module, f"bs_reserve_request_{name}", name)
    assert module.ffi.offsetof("bs_reserve", "until") == TOKEN_BYTES
    _implement(module, "bs_reserve_now", "now")
    _implement(module, "bs_reserve_shard_is_up", "is_up")
    _implement(module, "bs_reserve_withdraw", "withdraw")

    @module.ffi.def_extern(onerror=_keep_error)
    def bs_reserve_request_head(call: Any, shard: int, token: int, exact: bool, head: Any) -> bool:
        found = _requests_of(module, call).head(shard, token, exact)
        if found is not None:
            head.id, head.pri, head.holds, head.soon = found
        return found is not None

    @module.ffi.def_extern(onerror=_keep_error)
    def bs_reserve_reply(call: Any, reply: Any) -> None:
        _requests_of(module, call).reply(module.ffi.string(reply))

    return module.ffi, module.lib


_errors: list[BaseException] = []
"""Raised by requests; C code cannot pass them on."""


def _keep_error(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    _errors.append(error.with_traceback(trace))


def _requests_of(module: Any, call: Any) -> Any:
    return module.ffi.from_handle(call.requests)


def _implement(module: Any, function: str, method: str) -> None:
    def request(call: Any, *arguments: Any) -> Any:
        return getattr(_requests_of(module, call), method)(*arguments)

    module.ffi.def_extern(name=function, onerror=_keep_error)(request)


class Reserve:
    """A bs_reserve. Its methods are the events; they raise what a request raises."""

    def __init__(self) -> None:
        self.ffi, self.lib = _library()
        self.c = self.ffi.new("bs_reserve *")
        self._shared = False
        """A copy has the same `c`, until one of them changes."""

    def copy(self) -> Reserve:
        new: Reserve = object.__new__(Reserve)
        self._shared = True
        new.__dict__ = self.__dict__.copy()
        return new

    def _own(self) -> Any:
        """Return what only this reserve has, and may change."""
        if self._shared:
            old, self.c = self.c, self.ffi.new("bs_reserve *")
            self.ffi.memmove(self.c, old, self.ffi.sizeof("bs_reserve"))
            self._shared = False
        return self.c

    @property
    def token(self) -> int:
        return int(self.c.token)

    def state_without_token(self) -> bytes:
        """Return all but the token, which is the first member."""
        return bytes(self.ffi.buffer(self.c)[TOKEN_BYTES:])

    @property
    def phase(self) -> str:
        names = ("DONE", "HEADS", "CLAIMING", "WAITING", "TAKING", "REMOTE", "CANCELLING")
        return next(n for n in names if getattr(self.lib, f"BS_RESERVE_{n}") == self.c.phase)

    @property
    def is_strict(self) -> bool:
        """Return whether the last claim accepted only a job better than other heads."""
        return bool(self.c.tries <= self.lib.BS_STRICT_TRIES)

    def start(self, requests: Requests, home: int, concerned: set[int], until: int) -> None:
        shards = self.ffi.new("bs_shard_set *")
        for shard in concerned:
            shards.words[shard // 64] |= 1 << shard % 64
        self._event("start", requests, home, shards, until)

    def on_head(self, requests: Requests, shard: int, token: int, head: Head) -> None:
        self._event("on_head", requests, shard, token, self.ffi.new("bs_head *", head._asdict()))

    def on_slow(self, requests: Requests) -> None:
        self._event("on_slow", requests)

    def on_waited(self, requests: Requests, shard: int, token: int, how: int) -> None:
        self._event("on_waited", requests, shard, token, how)

    def on_lost(self, requests: Requests, token: int) -> None:
        self._event("on_lost", requests, token)

    def on_cancelled(self, requests: Requests, token: int, stopped: bool) -> None:
        self._event("on_cancelled", requests, token, stopped)

    def on_done(self) -> None:
        self.lib.bs_reserve_on_done(self._own())

    def on_down(self, requests: Requests, shard: int) -> None:
        self._event("on_down", requests, shard)

    def on_up(self, requests: Requests, shard: int) -> None:
        self._event("on_up", requests, shard)

    def _event(self, name: str, requests: Requests, *arguments: Any) -> None:
        handle = self.ffi.new_handle(requests)
        call = self.ffi.new("bs_reserve_call *", {"requests": handle})
        getattr(self.lib, f"bs_reserve_{name}")(self._own(), call, *arguments)
        if _errors:
            error = _errors[0]
            _errors.clear()
            raise error
