"""Write the SBOM of a version as CycloneDX JSON: `sbom.py WHEEL OUT`.

It has the dependencies that pip installs for the wheel and the extras of a server, and the vendored
JavaScript libraries of the console. `tools/release` runs this file and sets SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).parents[2]
VENDORED = ROOT / "beanstalkd_py/console/static/vendor"
SERVER_EXTRAS = "console,replication"
# A line of the table in its readme.
VENDORED_FILE = re.compile(
    r"\| `(?P<file>[^`]+)` \| (?P<package>\S+) \| (?P<version>\S+) "
    r"\| \[(?P<licence>[^]]+)]\([^)]+\) \| `(?P<sha256>\w+)` \|"
)
ROOT_COMPONENT = "root-component"
"""The reference that cyclonedx-py gives the package itself."""


def python_dependencies(wheel: Path) -> Any:
    """Return the SBOM of a fresh environment with the wheel."""
    with tempfile.TemporaryDirectory() as name:
        environment = Path(name)
        venv.create(environment, with_pip=False)
        python = str(environment / "bin/python")
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
        install = ("--python", python, "install", "--no-compile", f"{wheel}[{SERVER_EXTRAS}]")
        subprocess.run([*pip, *install], check=True)
        cyclonedx = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible")
        package = ("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application")
        done = subprocess.run([*cyclonedx, *package, python], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def vendored_libraries() -> Iterator[dict[str, Any]]:
    """Yield a component for each vendored file; exit if the readme does not match the files."""
    rows = [*VENDORED_FILE.finditer((VENDORED / "README.md").read_text(encoding="utf-8"))]
    found = {str(path.relative_to(VENDORED)) for path in VENDORED.rglob("*.[jc]s*")}
    if found != {row["file"] for row in rows}:
        sys.exit(f"release: the table of {VENDORED}/README.md does not have the files {found}")
    for row in rows:
        sha256 = hashlib.sha256((VENDORED / row["file"]).read_bytes()).hexdigest()
        if sha256 != row["sha256"]:
            sys.exit(f"release: {row['file']} has not the checksum of {VENDORED}/README.md")
        yield {
            "type": "library",
            "bom-ref": f"vendored/{row['file']}",
            "name": row["package"],
            "version": row["version"],
            "hashes": [{"alg": "SHA-256", "content": sha256}],
            "licenses": [{"license": {"id": row["licence"]}}],
            "purl": f"pkg:npm/{row['package']}@{row['version']}",
        }


def main() -> None:
    wheel, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    bom = python_dependencies(wheel)
    libraries = [*vendored_libraries()]
    bom["metadata"]["component"]["version"] = wheel.name.split("-")[1]
    bom["components"] += libraries
    for one in bom["dependencies"]:
        if one["ref"] == ROOT_COMPONENT:
            one["dependsOn"] += [library["bom-ref"] for library in libraries]
    bom["dependencies"] += [{"ref": library["bom-ref"]} for library in libraries]
    text = json.dumps(bom, indent=2) + "\n"
    wrong = JsonStrictValidator(SchemaVersion.from_version(bom["specVersion"])).validate_str(text)
    if wrong is not None:
        sys.exit(f"release: the SBOM is not valid: {wrong}")
    out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
