"""tools/release: the same bytes in another folder, checksums, SBOM, changelog and commit."""

from __future__ import annotations

import json
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from releases import AUTHOR, ROOT, Release, clone, run

from beanstalkd_py import __version__

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1800)]


def test_the_same_bytes_in_another_folder(release: Release, tmp_path: Path) -> None:
    other = clone(release.checkout, tmp_path / "another-folder-with-a-longer-name")
    out = tmp_path / "out"
    tags = "manylinux_2_28_x86_64 musllinux_1_2_aarch64"
    for package in ("sdist", "wheels", "image"):
        run(other / "tools/package", package, out, cwd=other, WHEELS=tags, BUILT=str(out))
    packages = sorted(path.name for path in out.iterdir())
    assert len(packages) == 4
    for name in packages:
        assert (out / name).read_bytes() == (release.folder / name).read_bytes(), name


def test_checksums(release: Release) -> None:
    checked = run("sha256sum", "--check", "SHA256SUMS", cwd=release.folder).splitlines()
    files = {path.name for path in release.folder.iterdir()} - {"SHA256SUMS"}
    assert {line.removesuffix(": OK") for line in checked} == files
    assert len(files) == 8


def test_bill_of_materials(release: Release) -> None:
    bom = json.loads((release.folder / f"beanstalkd_py-{__version__}.cdx.json").read_text())
    assert bom["bomFormat"] == "CycloneDX"
    assert bom["metadata"]["component"]["version"] == __version__
    names = {component["name"].lower().replace("_", "-") for component in bom["components"]}
    with zipfile.ZipFile(release.wheel("manylinux_2_28_x86_64")) as wheel:
        (path,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(wheel.read(path).decode())
    required = [one for one in metadata.get_all("Requires-Dist", []) if "extra ==" not in one]
    assert {one.partition(">")[0].lower() for one in required} <= names
    assert {"preact", "htm", "uplot", "werkzeug", "nats-py", "greenlet"} <= names
    assert "pyspark" not in names
    assert all(component["version"] for component in bom["components"])


def test_changelog_has_the_section_of_the_version(release: Release) -> None:
    text = (release.folder / f"CHANGELOG-{__version__}.md").read_text()
    assert text.strip()
    assert "\n## " not in f"\n{text}"
    assert text in (ROOT / "CHANGELOG.md").read_text()


def test_it_refuses_what_it_cannot_release(checkout: Path, tmp_path: Path) -> None:
    tree = clone(checkout, tmp_path / "tree")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    refused = run("tools/release", tmp_path / "full", cwd=tree, status=1)
    assert "is not empty" in refused

    changelog = tree / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(f"## {__version__}", "## 0.0.1"))
    assert "uncommitted changes" in run("tools/release", tmp_path / "out", cwd=tree, status=1)

    run("git", *AUTHOR, "commit", "--quiet", "--all", "-m", "Remove the section", cwd=tree)
    refused = run("tools/release", tmp_path / "out", cwd=tree, status=1)
    assert f"no text for version {__version__}" in refused
    assert not (tmp_path / "out").exists()


def test_builds_of_a_checkout_have_its_commit(release: Release, tmp_path: Path) -> None:
    """`pip install .` and `python -m build` run these commands of setup.py."""
    tree = clone(release.checkout, tmp_path / "tree")
    python = ROOT / ".venv-packaging/bin/python"
    run(python, "setup.py", "-q", "build_py", "--build-lib", tmp_path / "lib", cwd=tree)
    assert (tmp_path / "lib/beanstalkd_py/commit.txt").read_text() == f"{release.commit}\n"

    (tree / "README.md").write_text("changed")
    run(python, "setup.py", "-q", "sdist", "--formats=tar", "--dist-dir", tmp_path, cwd=tree)
    (archive,) = tmp_path.glob("*.tar")
    member = f"beanstalkd_py-{__version__}/beanstalkd_py/commit.txt"
    text = run("tar", "--extract", "--to-stdout", "--file", archive, member, cwd=tmp_path)
    assert text == f"{release.commit}-dirty\n"
