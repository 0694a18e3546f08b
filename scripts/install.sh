#!/usr/bin/env bash
# Makes $VENV (default .venv) hold this package, editable, with the extras named by the only argument.
#
# Safe to run again and to kill at any moment. While pip works a marker lies in the environment;
# a marker that outlived its run means that pip was killed in the middle of a package, which pip
# itself cannot see later, so the environment is built anew. A failure that pip reports leaves a
# sound environment: pip takes its steps back, and the environment is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

extras="${1:?usage: scripts/install.sh extra[,extra...]}"
venv="${VENV:-.venv}"
marker="$venv/.installing"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

say() { printf 'install: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

suits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; }
sound() { [ -x "$venv/bin/python" ] && suits "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        suits "$PYTHON" || fail "\`PYTHON\` must be a Python 3.10 or newer that starts, got \`$PYTHON\`"
        printf '%s\n' "$PYTHON"
        return
    fi
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11 python3.10 python; do
        if suits "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "no Python 3.10 or newer found: install one, or name it with PYTHON=path"
}

# Systems that ship Python without ensurepip cannot make an ordinary environment: other ways follow.
create() {
    local python
    python="$(find_python)"
    say "building $venv with $("$python" --version 2>&1)"
    mkdir -p "$(dirname "$venv")"
    rm -rf "$venv"
    "$python" -m venv "$venv" >/dev/null 2>&1 && sound && return
    rm -rf "$venv"
    "$python" -m virtualenv -q "$venv" >/dev/null 2>&1 && sound && return
    rm -rf "$venv"
    command -v uv >/dev/null && uv venv -q --seed --python "$python" "$venv" >/dev/null 2>&1 && sound && return
    rm -rf "$venv"
    if "$python" -m venv --without-pip "$venv" >/dev/null 2>&1; then
        "$python" -m pip --python "$venv/bin/python" install -q pip >/dev/null 2>&1 || true
        sound && return
    fi
    rm -rf "$venv"
    fail "\`$python -m venv $venv\` must work, got a failure: install the system's python3-venv package, or virtualenv, or uv"
}

pip_install() {
    touch "$marker"
    local status=0
    "$venv/bin/python" -m pip install -q -c constraints.txt "$@" || status=$?
    rm -f "$marker"
    [ "$status" -eq 0 ] || fail "pip failed with status $status; the lines above say why. Run the same command again to go on"
}

# Two set-ups at once would write into the same packages: the second waits for the first.
if command -v flock >/dev/null; then
    mkdir -p "$(dirname "$venv")"
    exec 9>"$venv.lock"
    flock 9
fi

if [ -e "$marker" ]; then
    say "an earlier set-up of $venv was killed half way"
    create
elif ! sound; then
    create
fi

# torch first and alone: what needs torch then finds the pinned one and pulls no other build.
torch="$(sed -n 's/^\(torch==[^ ;]*\).*/\1/p' constraints.txt)"
[ -n "$torch" ] || fail "\`constraints.txt\` must pin torch, got no line that begins with \`torch==\`"
say "installing $torch"
pip_install "$torch"
say "installing torchrl_elegant[$extras]"
pip_install -e ".[$extras]"
"$venv/bin/python" -c 'import torch, tensordict, torchrl, torchrl_elegant' || fail "the packages are installed and cannot be imported; remove $venv and run again"
say "$venv is ready"
