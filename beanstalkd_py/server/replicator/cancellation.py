"""Ends tasks for sure."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

REPEAT_S = 0.05


async def cancel_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel the tasks until all have ended.

    Once is not enough: before Python 3.12, `asyncio.wait_for`, which nats-py uses, swallows a
    cancellation that arrives together with its result.
    """
    while any(not task.done() for task in tasks):
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=REPEAT_S)
