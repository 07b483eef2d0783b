"""Sets up .venv with this project and the extras named on the command line: `python3 tools/setup.py dev check`.

It must run on any python3, so it uses only old Python 3 syntax. What is missing is reported in one line.
"""

import importlib.util
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
MIN_PYTHON = (3, 11)
INSTALL_SIZES = {
    "dev": "550 MB, about 25 s the first time",
    "spark": "1.5 GB, about 45 s the first time",
    "check": "270 MB more, about 10 s the first time",
}


def module_exists(name):
    return importlib.util.find_spec(name) is not None


def python_problem(version, exists):
    """What this Python lacks, in one line; empty if it will do. `exists` tells whether a module can be imported."""
    name = "{}.{}".format(*version[:2])
    if tuple(version[:2]) < MIN_PYTHON:
        wanted = "{}.{}".format(*MIN_PYTHON)
        return f"python3 is {name}, {wanted} or newer is needed; install one and run make PYTHON=python{wanted} again"
    missing = [module for module in ("venv", "ensurepip") if not exists(module)]
    if missing:
        return (
            f"python3 lacks {' and '.join(missing)}; install it (Debian, Ubuntu: apt install python{name}-venv)"
            " and run make again"
        )
    return ""


def run(command, log_path):
    """Runs quietly; shows the end of what was said only if it fails."""
    with open(log_path, "wb") as log:
        code = subprocess.call(command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT)
    if code:
        with open(log_path, errors="replace") as log:
            sys.stderr.write("".join(log.readlines()[-20:]))
        sys.exit(f"umdf: set-up failed at `{' '.join(command[1:4])}`; the whole log is in {os.path.relpath(log_path)}")


def main(extras):
    fault = python_problem(sys.version_info, module_exists)
    if fault:
        sys.exit("umdf: " + fault)
    print(f"setting up .venv ({', '.join(extras)}: {INSTALL_SIZES[extras[-1]]}) …", flush=True)
    python = os.path.join(VENV, "bin", "python")
    usable = os.path.exists(python) and subprocess.call([python, "-c", "import pip"], stderr=subprocess.DEVNULL) == 0
    if not usable and subprocess.call([sys.executable, "-m", "venv", "--clear", VENV]):  # absent, or its Python is gone
        sys.exit("umdf: python3 could not make .venv; see the lines above")
    constraints = os.path.join(ROOT, "constraints.txt")
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input", "-c", constraints]
    run([*pip, "-e", f"{ROOT}[{','.join(extras)}]"], os.path.join(VENV, "setup.log"))


if __name__ == "__main__":
    main(sys.argv[1:])
