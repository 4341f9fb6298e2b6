# shellcheck shell=bash
# Sourced by the tools: a virtual environment with the package in it, built from this tree.
#
# Two stamps make the second time quick: one of the dependencies, one of the package's sources. Each is
# a hash, so touching a file without changing it costs nothing. The package is built from a copy, which
# keeps the tree clean and stale build folders out of the wheel.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

hash_of_stdin() { sha256sum | cut -c1-64; }

# The hash of the paths and contents of the package's files.
hash_of_package() {
    (
        cd "$ROOT" || exit
        find csrc beanstalkd_py pyspark_*.py pyproject.toml setup.py MANIFEST.in -type f \
            ! -path '*/__pycache__/*' ! -path 'beanstalkd_py/*.c' ! -name '*.so' ! -name '*.o' -print0 |
            LC_ALL=C sort -z | xargs -0 sha256sum | hash_of_stdin
    )
}

# --- system packages --------------------------------------------------------------------------------

# The interpreter of new environments.
PYTHON=python3

python_is_recent() {
    command -v "$PYTHON" >/dev/null && "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))'
}

# Debian splits venv and the headers off; an interpreter built from source has both.
python_has_venv() { "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; }

python_has_headers() {
    "$PYTHON" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))'
}

have_compiler() { command -v cc >/dev/null || command -v gcc >/dev/null; }

# Debian packages that are missing, one per line.
missing_packages() {
    if ! python_is_recent; then
        printf '%s\n' python3 python3-venv python3-dev
    else
        python_has_venv || echo python3-venv
        python_has_headers || echo python3-dev
    fi
    have_compiler || printf '%s\n' gcc libc6-dev
    local name
    for name in "$@"; do
        command -v "${name#*=}" >/dev/null || [ -x "/usr/bin/${name#*=}" ] || echo "${name%%=*}"
    done
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

# Installs missing packages, or lists them and exits with 2. Arguments: further Debian packages, each
# as PACKAGE=COMMAND, or as its name alone if the command has the same.
# shellcheck disable=SC2120
ensure_system() {
    local missing
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -eq 0 ] && return
    if command -v apt-get >/dev/null && as_root true 2>/dev/null; then
        say "installing system packages: ${missing[*]}"
        as_root apt-get update -q >/dev/null || true
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}" >/dev/null || true
        mapfile -t missing < <(missing_packages "$@")
        [ ${#missing[@]} -eq 0 ] && return
    fi
    say "missing system packages: ${missing[*]}"
    if ! python_is_recent; then
        say "python3 must be 3.11 or newer, with venv and headers"
    fi
    say "install them (apt-get install ${missing[*]}) and run this again"
    exit 2
}

# Unpacks Debian packages into build/programs. Installing these would start services on public addresses. Arguments:
# their names, which their commands have, too.
ensure_unpacked() {
    local folder=$ROOT/build/programs name
    mkdir -p "$folder"
    for name in "$@"; do
        [ -n "$(find "$folder" -path "*bin/$name" -print -quit)" ] && continue
        say "unpacking $name into ${folder#"$ROOT"/}"
        (
            cd "$folder" || exit
            apt-get -q download "$name" >/dev/null 2>&1 ||
                { as_root apt-get update -q && apt-get -q download "$name"; } >/dev/null
            dpkg-deb -x "${name}"_*.deb .
            rm "${name}"_*.deb
        )
    done
}

# --- the environment --------------------------------------------------------------------------------

stamp_is() { [ "$(cat "$1" 2>/dev/null)" = "$2" ]; }

# ensure_environment FOLDER [EXTRA [BASE]]: installs the package of this tree with its extra into FOLDER. With the
# environment BASE, which is up to date, FOLDER has the package only, and BASE the dependencies.
ensure_environment() {
    local folder=$1 extra=${2:-} base=${3:-}
    local dependencies package
    dependencies=$(hash_of_stdin <"$ROOT/pyproject.toml")
    package=$(hash_of_package)
    if is_current "$folder" "$dependencies" "$package" "$extra"; then
        return
    fi
    # shellcheck disable=SC2119
    ensure_system
    # Two concurrent tools must not build into the same folder; the second one checks again. The
    # descriptor closes with the subshell.
    (
        flock 9
        is_current "$folder" "$dependencies" "$package" "$extra" ||
            build_environment "$folder" "$extra" "$dependencies" "$package" "$base"
    ) 9>"$folder.lock"
}

is_current() {
    stamp_is "$1/.package" "$3" && has_dependencies "$1" "$2" "$4"
}

# An environment with the extra `test` also serves requests without an extra.
has_dependencies() {
    local folder=$1 dependencies=$2 extra=$3
    stamp_is "$folder/.dependencies" "$dependencies:test" ||
        { [ -z "$extra" ] && stamp_is "$folder/.dependencies" "$dependencies:"; }
}

build_environment() {
    local folder=$1 extra=$2 dependencies=$3 package=$4 base=$5
    if ! "$folder/bin/python" -c 'import pip' 2>/dev/null; then
        say "creating ${folder#"$ROOT"/} with $("$PYTHON" --version)"
        "$PYTHON" -m venv --clear ${base:+--without-pip} "$folder"
    fi
    if [ -n "$base" ]; then
        packages_of "$base" >"$(packages_of "$folder")/base.pth"
        echo "$dependencies:$extra" >"$folder/.dependencies"
    fi
    local copy
    copy=$(mktemp -d)
    # shellcheck disable=SC2064  # expand the path now
    trap "rm -rf '$copy'" EXIT
    copy_sources "$copy"
    local pip=("$folder/bin/python" -m pip --quiet --disable-pip-version-check) wheels=$folder/wheels building
    if ! has_dependencies "$folder" "$dependencies" "$extra"; then
        "${pip[@]}" install --upgrade setuptools wheel "cffi>=1.16"
        build_wheel "$copy" "$wheels" "${pip[@]}" &
        building=$!
        install_dependencies "$folder" "$extra" "${pip[@]}"
        wait "$building"
        echo "$dependencies:$extra" >"$folder/.dependencies"
    elif [ -z "${BEANSTALKD_PY_SANITIZE:-}" ] && [ -n "$base" ] && [ -d "$base/wheels" ]; then
        wheels=$base/wheels
    else
        say "building the package"
        build_wheel "$copy" "$wheels" "${pip[@]}"
    fi
    "${pip[@]}" install --no-deps --force-reinstall "$wheels"/*.whl
    echo "$package" >"$folder/.package"
    say "installed beanstalkd_py $("$folder/bin/python" -P -c 'import beanstalkd_py as b; print(b.__version__)')" \
        "in ${folder#"$ROOT"/}"
}

# build_wheel SOURCES WHEELS PIP...
build_wheel() {
    rm -rf "$2"
    (cd "$1" && "${@:3}" wheel --no-build-isolation --no-deps --wheel-dir "$2" .)
}

# install_dependencies FOLDER EXTRA PIP...: the many packages of an extra by uv, which takes half of pip's time.
install_dependencies() {
    local folder=$1 extra=$2 installer=("${@:3}" install) listed
    mapfile -t listed < <(dependencies_of "$extra")
    say "installing dependencies: ${listed[*]}"
    if [ -n "$extra" ]; then
        "${installer[@]}" uv
        installer=("$folder/bin/uv" pip install --quiet --python "$folder/bin/python" --no-build-isolation)
    fi
    "${installer[@]}" "${listed[@]}"
}

# python_of VERSION: prints the path of an interpreter, which may have to be unpacked first.
python_of() { local_python "$1" || debian_python "$1"; }

# local_python VERSION: prints the path of an interpreter of PATH or pyenv; fails if there is none.
local_python() {
    local name
    for name in "python$1" "$HOME/.pyenv/versions/$1".*/bin/python; do
        "$name" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null || continue
        command -v "$name"
        return
    done
    return 1
}

# debian_python VERSION: unpacks the interpreter of another release of Debian, with its C library, makes it run on this
# system, and prints its path.
debian_python() {
    local root=$ROOT/build/python-$1 suite
    case $1 in
    3.13) suite=trixie ;;
    3.14) suite=forky ;;
    *) say "no Python $1: install it, or put it into PATH" && exit 2 ;;
    esac
    if [ ! -e "$root/usr/bin/python" ]; then
        ensure_system mmdebstrap patchelf
        say "unpacking Python $1 of Debian $suite"
        rm -rf "$root"
        mkdir -p "$ROOT/build"
        # A release in development stays on a mirror after the date that it names.
        mmdebstrap --quiet --variant=extract --include="python$1-venv,python$1-dev,libstdc++6" \
            --aptopt='Acquire::Check-Valid-Until "false"' "$suite" "$root" http://deb.debian.org/debian || exit
        # Paths in it are those of a system whose root it is.
        cp "$root"/usr/include/*-linux-gnu/"python$1/pyconfig.h" "$root/usr/include/python$1/"
        sed -i "s#/usr/share/python-wheels#$root&#" "$root/usr/lib/python$1"/_sysconfig*
        # RPATH also counts for the libraries of extension modules, RUNPATH does not.
        patchelf --set-interpreter "$(echo "$root"/usr/lib/*/ld-linux-*.so.*)" --force-rpath \
            --set-rpath "$(echo "$root"/usr/lib/*-linux-gnu)" "$root/usr/bin/python$1"
        ln -s "python$1" "$root/usr/bin/python"
    fi
    echo "$root/usr/bin/python"
}

# The environment with the programs that build packages.
PACKAGING=$ROOT/.venv-packaging

ensure_packaging() {
    local requirements=$ROOT/tools/packagelib/build_requirements.txt
    stamp_is "$PACKAGING/.dependencies" "$(hash_of_stdin <"$requirements")" && return
    ensure_system git
    say "installing the programs that build packages"
    python3 -m venv --clear "$PACKAGING"
    "$PACKAGING/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
    hash_of_stdin <"$requirements" >"$PACKAGING/.dependencies"
}

packages_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# dependencies_of EXTRA: prints the requirements of the package and its extra, if any, one per line.
dependencies_of() {
    "$PYTHON" - "$ROOT/pyproject.toml" "$1" <<'PYTHON'
import sys, tomllib
with open(sys.argv[1], "rb") as file:
    project = tomllib.load(file)["project"]
print(*project["dependencies"], *project["optional-dependencies"].get(sys.argv[2], []), sep="\n")
PYTHON
}

copy_sources() {
    (cd "$ROOT" && cp -R csrc beanstalkd_py pyspark_*.py pyproject.toml setup.py MANIFEST.in LICENSE README.md "$1/")
    find "$1" -name '*.so' -delete
}
