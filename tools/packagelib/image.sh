# shellcheck shell=bash
# Sourced by tools/package: builds the container image, or the context of its Containerfile, in $OUT without a registry.
#
# The image has Debian's Python, for which pip chooses the wheels of the dependencies, so the Python of this machine
# may be another one.

SUITE=bookworm
PYTHON=3.11
LIBC_MINOR=36 # glibc 2.36
EXTRAS=console,replication
USER_ID=11300

VERSION=$("$VENV/bin/python" -P -c 'import beanstalkd_py; print(beanstalkd_py.__version__)')
IMAGE=localhost/beanstalkd-py:$VERSION
ARCHIVE=$OUT/beanstalkd-py-$VERSION-image.tar
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

image_root() {
    say "unpacking Debian's Python"
    local exclude=() path
    for path in doc man locale info lintian bug; do
        exclude+=(--dpkgopt="path-exclude=/usr/share/$path/*")
    done
    mmdebstrap --quiet --variant=extract --include=python3-minimal,libpython3-stdlib,libstdc++6,netbase,tini "${exclude[@]}" \
        "$SUITE" "$1"
}

# nkeys, of the extra `replication`, has no wheel on PyPI.
image_wheels() {
    say "building wheels"
    mkdir "$1"
    "$ROOT/tools/docs" man
    WHEELS=manylinux_2_28_$(uname -m) "$PACKAGING/bin/python" "$ROOT/tools/packagelib/wheels.py" wheels "$1" >/dev/null
    "$VENV/bin/python" -m pip --quiet wheel --no-deps --no-build-isolation --wheel-dir "$1" nkeys
}

# The files of the package and its dependencies, below the folder $1.
image_packages() {
    local machine platforms=() minor library=$1/usr/lib/python3/dist-packages
    machine=$(uname -m)
    for minor in $(seq "$LIBC_MINOR" -1 5); do
        platforms+=(--platform "manylinux_2_${minor}_$machine")
    done
    platforms+=(--platform "manylinux2014_$machine")
    image_wheels "$WORK/wheels"
    say "installing dependencies: $EXTRAS"
    "$VENV/bin/python" -m pip --quiet install --target "$library" --no-compile --only-binary=:all: \
        --python-version "$PYTHON" --implementation cp "${platforms[@]}" --find-links "$WORK/wheels" \
        "beanstalkd_py[$EXTRAS]==$VERSION"
    mkdir -p "$1/usr/bin" "$1/etc" "$1/tmp"
    { echo '#!/usr/bin/python3 -P' && tail -n +2 "$library/bin/beanstalkd-py"; } >"$1/usr/bin/beanstalkd-py"
    chmod 755 "$1/usr/bin/beanstalkd-py"
    rm -r "${library:?}/bin" "$library/gevent/tests"
    # Their first lines have a path of this machine.
    sed -i '/^\.\.\/\.\.\/bin\//d' "$library"/*.dist-info/RECORD
    printf '%s\n' root:x:0:0::/:/usr/sbin/nologin \
        "beanstalkd-py:x:$USER_ID:$USER_ID::/var/lib/beanstalkd-py:/usr/sbin/nologin" >"$1/etc/passwd"
    printf '%s\n' root:x:0: "beanstalkd-py:x:$USER_ID:" >"$1/etc/group"
}

# Fills the folder $1, the context of the Containerfile.
image_context() {
    image_root "$1/root.tar"
    image_packages "$WORK/files"
    install -d -m 700 "$WORK/data/var/lib/beanstalkd-py" "$WORK/data/var/lib/beanstalkd-py.history"
    local options=(--sort=name --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --file "$1/packages.tar")
    tar -C "$WORK/files" --create --owner=0 --group=0 "${options[@]}" usr etc
    tar -C "$WORK/data" --append --owner="$USER_ID" --group="$USER_ID" "${options[@]}" \
        var/lib/beanstalkd-py var/lib/beanstalkd-py.history
    cp "$ROOT/tools/packagelib/Containerfile" "$1"
}

# Storage of its own, in one layer, so that nothing of this machine's containers is used or changed.
image_buildah() {
    buildah --root "$WORK/storage" --runroot "$WORK/run" --storage-driver vfs "$@"
}

image_build() {
    say "building $IMAGE"
    # The format of Docker, because OCI's has no health check.
    image_buildah build --quiet --isolation chroot --format docker --layers=false --network host \
        --timestamp "$SOURCE_DATE_EPOCH" --tag "$IMAGE" "$1" >/dev/null
    image_buildah push --quiet "$IMAGE" "docker-archive:$WORK/image.tar:$IMAGE"
    python3 "$ROOT/tools/packagelib/image_archive.py" "$WORK/image.tar" "$ARCHIVE"
    say "built ${ARCHIVE#"$ROOT"/}"
}

umask 022
case "$1" in
image)
    mkdir "$WORK/context"
    image_context "$WORK/context"
    image_build "$WORK/context"
    ;;
image-context)
    mkdir -p "$OUT/image-context"
    image_context "$OUT/image-context"
    say "built ${OUT#"$ROOT"/}/image-context"
    ;;
esac
