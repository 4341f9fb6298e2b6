"""Write an image without what differs between two builds: `image_archive.py IN OUT`.

Both are archives as `docker save` makes them. buildah records the names of its working container.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Iterator

Member = tuple[str, bytes]


def members(archive: tarfile.TarFile) -> Iterator[Member]:
    """Yield the manifest, the configuration and the layers under the names that they had."""
    (image,) = json.loads(content(archive, "manifest.json"))
    config = json.loads(content(archive, image["Config"]))
    for name in ("container", "container_config"):
        config.pop(name, None)
    config["config"].pop("Hostname", None)
    data = json.dumps(config, sort_keys=True).encode()
    name = f"{hashlib.sha256(data).hexdigest()}.json"
    yield "manifest.json", json.dumps([{**image, "Config": name}]).encode()
    yield name, data
    for layer in image["Layers"]:
        yield layer, content(archive, layer)


def content(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None, name
    return file.read()


def main() -> None:
    source, target = sys.argv[1:]
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for name, data in members(old):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            new.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    main()
