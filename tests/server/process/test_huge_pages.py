"""Workers ask the kernel for huge pages; the processes beside them do not."""

from __future__ import annotations

import re
from pathlib import Path

from processes import children
from servers import ours

from beanstalkd_py.server.process.launch import HUGE_PAGES


def tunables_of(pid: int) -> list[str]:
    environment = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return [line for line in environment if line.startswith("GLIBC_TUNABLES=")]


def flags_of_heap(pid: int) -> set[str]:
    """The flags of all its mappings. glibc 2.42 asks for huge pages for its end only."""
    mappings = Path(f"/proc/{pid}/smaps").read_text().split("[heap]\n")[1:]
    lines = (re.search("^VmFlags: (.*)", text, re.MULTILINE) for text in mappings)
    return {flag for line in lines if line for flag in line[1].split()}


def test_the_heap_of_a_worker_asks_for_huge_pages() -> None:
    with ours() as server:
        client = server.connect()
        for _ in range(100):
            client.ask(b"put 0 0 60 60000\r\n%b\r\n" % (b"x" * 60000))
        (worker,) = children(server.pid)
        assert tunables_of(worker) == [f"GLIBC_TUNABLES={HUGE_PAGES}"]
        # glibc asks for them only if the system leaves the choice to the program.
        mode = Path("/sys/kernel/mm/transparent_hugepage/enabled")
        if mode.exists() and "[madvise]" in mode.read_text():
            assert "hg" in flags_of_heap(worker)
        assert tunables_of(server.pid) == []
