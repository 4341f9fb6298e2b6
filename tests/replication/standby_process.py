"""A standby on a log in memory that follows in small steps, takes over, and is the primary.

python standby_process.py MESSAGES FOLDER

MESSAGES has the log, at the end with the fence of this standby.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from pathlib import Path

from replication.memory_log import MemoryCluster, MemoryLog

from beanstalkd_py.replication import node as node_module
from beanstalkd_py.replication.lease import Lease
from beanstalkd_py.replication.node import Node


async def take_over(cluster: MemoryCluster, folder: Path) -> None:
    """Follow the streams and become the primary, in which the folder is equal to them."""
    log = MemoryLog(cluster)
    node = Node(log, Lease(log, "node", "127.0.0.1:1", 0.0), folder, [folder], None)
    await node.open()
    await node.stand_by()
    await node.become_primary()


if __name__ == "__main__":
    for name in ("POLL_S", "OBSERVE_S", "SAVE_S"):
        setattr(node_module, name, 0.0)
    messages = Path(sys.argv[1])
    cluster = pickle.loads(messages.read_bytes())
    asyncio.run(take_over(cluster, Path(sys.argv[2])))
    cluster.listeners.clear()
    messages.write_bytes(pickle.dumps(cluster))
