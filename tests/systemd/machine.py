"""Boot a system in a container with its own systemd: this one, to test the units, or another one.

The container's root is an overlay on the system's root, with its changes in memory. Its mounts are
in a mount namespace that ends with its last process. Tests enter its private network to connect.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from processes import children, eventually
from wire import Client

UNITS = Path(__file__).parents[2] / "systemd"
PROGRAM = Path("usr/bin/beanstalkd-py")
PREFIX = Path("/opt/beanstalkd-py")
"""The program's virtual environment inside; ProtectHome hides /root and /home from a unit."""
BOOT_S = 60.0
COMMAND_S = 60.0
LISTEN_S = 20.0
CLONE_NEWNET = 0x40000000

BOOT_SCRIPT = """
set -eu
system=$1 root=$2 files=$3
shift 3
mount -t tmpfs tmpfs "$root"
cd "$root"
mkdir upper work merged
mount -t overlay overlay -o "lowerdir=$system,upperdir=upper,workdir=work" merged
[ "$system" != / ] || rm -rf merged/etc/systemd/system
rm -f merged/etc/machine-id
cp -R --remove-destination "$files/." merged/
exec systemd-nspawn --quiet --boot --register=no --keep-unit --private-network --link-journal=no \\
    --console=pipe --directory "$root/merged" "$@"
"""


class Machine:
    """A booted container. Paths are absolute inside the container unless stated otherwise."""

    def __init__(self, leader: int) -> None:
        self._leader = leader

    def path(self, inside: str | Path) -> Path:
        """Return the outside path of a file."""
        return Path(f"/proc/{self._leader}/root") / str(inside).lstrip("/")

    def run(self, *command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as root."""
        enter = ["nsenter", "--all", "--target", str(self._leader)]
        done = subprocess.run(
            [*enter, *map(str, command)],
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        if check:
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}{self.journal()}"
        return done

    def systemctl(self, *words: str, check: bool = True) -> str:
        return self.run("systemctl", "--no-pager", *words, check=check).stdout.strip()

    def show(self, unit: str, name: str) -> str:
        """Return one property of a unit."""
        return self.systemctl("show", "--value", f"--property={name}", unit)

    def main_pid(self, unit: str) -> int:
        """Return the main process of a unit, by its outside id; 0 if there is none."""
        pid = int(self.show(unit, "MainPID"))
        return self.outside(pid) if pid else 0

    def outside(self, pid: int) -> int:
        """Return the outside id of a process inside; 0 if it has ended."""
        return next((each for each in self._processes() if _number_inside(each) == pid), 0)

    def journal(self, *words: str) -> str:
        """Return the last lines of the journal."""
        command = ["journalctl", "--no-pager", "--lines=60", "--output=cat", *words]
        return self.run(*command, check=False).stdout

    def enter_network(self) -> None:
        """Move this thread inside. Its sockets stay in the namespace in which it has made them."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/proc/{self._leader}/ns/net").open() as network:
            assert libc.setns(network.fileno(), CLONE_NEWNET) == 0, ctypes.get_errno()

    def connect(self, port: int = 11300) -> Client:
        """Connect from inside."""

        def connect() -> Client:
            self.enter_network()
            return Client(port)

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(connect).result()

    def wait_until_listening(self) -> None:
        """Wait for a server on its default port, whose unit may be active before it listens."""

        def listens() -> bool:
            try:
                self.connect().close()
            except ConnectionRefusedError:
                return False
            return True

        assert eventually(listens, LISTEN_S), self.journal()

    def _processes(self) -> Iterator[int]:
        waiting = [self._leader]
        while waiting:
            pid = waiting.pop()
            yield pid
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                waiting += children(pid)


@contextlib.contextmanager
def booted(folder: Path) -> Iterator[Machine]:
    """Boot this system with the units and the program. `folder` is empty, for its files."""
    binds = _install(folder / "files")
    with booted_system(Path("/"), folder, *binds, "systemd.unit=basic.target") as machine:
        yield machine


@contextlib.contextmanager
def booted_system(system: Path, folder: Path, *options: str) -> Iterator[Machine]:
    """Boot the system whose root is `system`, and which stays unchanged.

    `folder/files` has files to add. The options are those of systemd-nspawn.
    """
    assert os.geteuid() == 0, "only root can boot a system in a container"
    for tool in ("systemd-nspawn", "nsenter", "unshare"):
        assert shutil.which(tool), f"{tool} is missing: run tools/test, which installs it"
    root, files, log = folder / "root", folder / "files", folder / "console"
    root.mkdir()
    # The boot fills an empty file; the id of `system` would name its journal.
    (files / "etc").mkdir(parents=True, exist_ok=True)
    (files / "etc/machine-id").touch()
    groups = _make_groups(f"beanstalkd-py-test-{os.getpid()}")
    # The shell waits until it is in its control group, which its children inherit.
    command = [
        *("sh", "-c", 'read -r go && exec "$@"', "sh", "setpriv", "--pdeathsig", "TERM"),
        *("unshare", "--mount", "--propagation", "private"),
        *("sh", "-c", BOOT_SCRIPT, "boot", str(system), str(root), str(files), *options),
    ]
    with log.open("wb") as console:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=console,
            stderr=console,
            start_new_session=True,
        )
    try:
        for group in groups:
            (group / "cgroup.procs").write_text(str(process.pid))
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
        yield Machine(_wait_for_boot(process, log))
    finally:
        _end(process)
        for group in groups:
            _remove_group(group)


def _wait_for_boot(process: subprocess.Popen[bytes], log: Path) -> int:
    """Return the container's first process, once systemd has started all units."""
    end = time.monotonic() + BOOT_S
    while time.monotonic() < end:
        assert process.poll() is None, f"systemd-nspawn ended: {log.read_text(errors='replace')}"
        for child in children(process.pid):
            if _name(child) != "systemd":
                continue
            machine = Machine(child)
            state = machine.systemctl("is-system-running", "--wait", check=False)
            if state in ("running", "degraded"):
                return child
        time.sleep(0.05)
    raise AssertionError(f"systemd has not started: {log.read_text(errors='replace')}")


def _name(pid: int) -> str:
    """Return the name of a process, or an empty one if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the container's first process, and so all others; then its mounts are gone."""
    if process.stdin is not None:
        process.stdin.close()  # ends a waiting shell
    for pid in children(process.pid) if process.poll() is None else []:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


# --- installation ---------------------------------------------------------------------------------


def _install(files: Path) -> list[str]:
    """Fill `files` for the container's root; return the options that bind the rest."""
    system = files / "etc/systemd/system"
    system.mkdir(parents=True)
    (files / "etc/default").mkdir()
    for unit in [*UNITS.glob("beanstalkd-py*.s*"), *UNITS.glob("*.timer")]:
        shutil.copy(unit, system)
    python = Path(os.path.realpath(sys.executable))
    binds = [_bind(Path(sysconfig.get_path("purelib")), _packages())]
    if not python.is_relative_to("/usr"):
        base = Path(sys.base_prefix)
        binds.append(_bind(base, Path("/opt/python")))
        python = Path("/opt/python") / python.relative_to(os.path.realpath(base))
        if sysconfig.get_config_var("Py_ENABLE_SHARED"):
            # ProtectHome may hide the path in the interpreter line.
            library = f"lib/{sysconfig.get_config_var('INSTSONAME')}"
            folder = files / "usr/lib" / sysconfig.get_config_var("MULTIARCH")
            folder.mkdir(parents=True)
            (folder / Path(library).name).symlink_to(Path("/opt/python") / library)
    inside = files / str(PREFIX).lstrip("/")
    (inside / "bin").mkdir(parents=True)
    (inside / "bin/python").symlink_to(python)
    (inside / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    (files / str(_packages()).lstrip("/")).mkdir(parents=True)
    (files / "opt/python").mkdir(exist_ok=True)
    script = Path(sys.executable).with_name("beanstalkd-py").read_text()
    (files / PROGRAM).parent.mkdir(parents=True)
    (files / PROGRAM).write_text(f"#!{PREFIX}/bin/python\n" + script.partition("\n")[2])
    (files / PROGRAM).chmod(0o755)
    return binds


def _packages() -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return PREFIX / "lib" / version / "site-packages"


def _bind(outside: Path, inside: Path) -> str:
    return f"--bind-ro={outside}:{inside}"


# --- control groups -------------------------------------------------------------------------------


def _make_groups(name: str) -> list[Path]:
    """Create a control group in each hierarchy that systemd manages."""
    made = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split()[:3]
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options):
            group = Path(before.split()[4]) / name
            group.mkdir(exist_ok=True)
            made.append(group)
    return made


def _remove_group(group: Path) -> None:
    """Remove the group and its children, once the last process has left."""

    def gone() -> bool:
        for path in sorted(group.rglob("*/"), reverse=True):
            with contextlib.suppress(OSError):
                path.rmdir()
        with contextlib.suppress(OSError):
            group.rmdir()
        return not group.exists()

    assert eventually(gone, 10), f"processes are left in {group}"


def _number_inside(pid: int) -> int:
    """Return a process's id in its own namespace."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    line = next(line for line in text.splitlines() if line.startswith("NSpid:"))
    return int(line.split()[-1])
