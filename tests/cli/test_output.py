"""Output of all commands: exit codes, one-line errors, JSON, a traceback only with --debug."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import umdf
from umdf.cli.app import run
from umdf.cli.output import EXIT_CODES, DamagedError, JsonFlag, Printer, json_text
from umdf.errors import CaptureError, Fault, SchemaError, UsageError

ROOT = Path(__file__).parents[2]
UMDF = [sys.executable, "-c", "from umdf.cli import main; main()"]


def failing(error: BaseException) -> ModuleType:
    """A command that does nothing but raise."""

    def probe(as_json: JsonFlag = False) -> None:
        """Fail."""
        print("some output")
        raise error

    module = ModuleType("umdf.cli.probe")
    module.probe, module.EXAMPLES = probe, ("umdf probe",)  # type: ignore[attr-defined]
    return module


FAULTS = [Fault("b3.xml", line, "field", "has no type") for line in range(1, 26)]
CASES = {
    "capture": (CaptureError("x.pcap: no capture", "give a pcap file"), 3, "x.pcap: no capture", "give a pcap file"),
    "one fault": (SchemaError(FAULTS[:1]), 3, "b3.xml:1: field: has no type", ""),
    "faults": (SchemaError(FAULTS), 3, "25 errors in b3.xml", "fix them all"),
    "usage": (UsageError("--at noon: no time", "say 12:00"), 2, "--at noon: no time", "say 12:00"),
    "damaged": (DamagedError("3 messages damaged", "see the journal"), 4, "3 messages damaged", "see the journal"),
    "missing": (FileNotFoundError(2, "No such file or directory", "a.pcap"), 3, "cannot access a.pcap: No such file or directory", "check the path and its permissions"),  # noqa: E501
    "bug": (KeyError("price\nlevel"), 1, r"internal error: KeyError: 'price\nlevel'", "this is a bug, please report it with the output of `umdf --debug …`"),  # noqa: E501
    "stopped": (KeyboardInterrupt(), 130, "interrupted", ""),
}  # fmt: skip


@pytest.mark.parametrize(("error", "code", "reason", "hint"), CASES.values(), ids=CASES.keys())
def test_an_error_is_one_line_with_what_to_do_next(
    error: BaseException, code: int, reason: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["probe"], [failing(error)]) == code
    out, err = capsys.readouterr()
    assert out == "some output\n"
    assert err.splitlines()[0] == f"umdf: {reason}" + (f"; {hint}" if hint else "")
    assert "Traceback" not in err
    if not isinstance(error, SchemaError):
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize(("error", "code", "reason", "hint"), CASES.values(), ids=CASES.keys())
def test_with_json_an_error_is_one_object(
    error: BaseException, code: int, reason: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["probe", "--json"], [failing(error)]) == code
    said = json.loads(capsys.readouterr().err)
    assert (said["error"], said["hint"], said["exit_code"]) == (reason, hint, code)


def test_every_fault_of_a_schema_has_its_line_up_to_twenty(capsys: pytest.CaptureFixture[str]) -> None:
    run(["probe"], [failing(SchemaError(FAULTS))])
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == [f"  {fault}" for fault in FAULTS[:20]] + ["  … and 5 more"]
    run(["--json", "probe"], [failing(SchemaError(FAULTS))])
    assert [fault["line"] for fault in json.loads(capsys.readouterr().err)["faults"]] == list(range(1, 26))


def test_debug_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--debug", "probe"], [failing(CaptureError("x.pcap: not a capture"))]) == 3
    err = capsys.readouterr().err
    assert "Traceback" in err and err.splitlines()[-1] == "umdf: x.pcap: not a capture"


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["doctr"], "umdf: no such command 'doctr'; did you mean 'doctor'?"),
        (["zzz"], "umdf: no such command 'zzz'; see `umdf --help`"),
        (["doctor", "--jsn"], "umdf: no such option: --jsn; did you mean --json?"),
        (["doctor", "extra"], "umdf: got unexpected extra argument(s) (extra); see `umdf doctor --help`"),
        (["doctor", "--config", "x.toml"], "umdf: --config is a global option; put it before the command"),
        (
            ["decode", "x", "--limit", "-1"],
            "umdf: invalid value for '--limit': must be at least 0; see `umdf decode --help`",
        ),
        (["--config"], "umdf: option '--config' requires an argument; see `umdf --help`"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    argv: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 2
    assert capsys.readouterr() == ("", line + "\n")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"umdf {umdf.__version__}\n"
    assert run(["--version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == umdf.__version__


def test_umdf_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    alone = capsys.readouterr().out
    assert run(["--help"]) == 0
    assert alone.split() == capsys.readouterr().out.split()
    assert "Usage: umdf" in alone


def test_the_readme_lists_every_exit_code() -> None:
    readme = (ROOT / "README.md").read_text()
    for code, meaning in EXIT_CODES.items():
        assert f"| {int(code)} | {meaning.replace('|', chr(92) + '|')} |" in readme


def test_help_loads_no_heavy_package() -> None:
    heavy = {"numba", "numpy", "pyarrow"}
    look = f"import sys; from umdf.cli.app import run; run(['--help']); print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_piped_help_and_errors_have_no_colour_codes() -> None:
    quiet = {
        key: value for key, value in os.environ.items() if key not in {"FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS"}
    }
    for argv in (["--help"], ["doctor", "--help"], ["doctr"]):
        done = subprocess.run([*UMDF, *argv], capture_output=True, text=True, env=quiet)
        assert "\x1b" not in done.stdout + done.stderr


LOOP = """
import sys, types
from umdf.cli.app import run
def probe():
    "Print or wait for ever."
    print("ready", flush=True)
    while True:
        {body}
module = types.ModuleType("umdf.cli.probe")
module.probe, module.EXAMPLES = probe, ()
sys.exit(run(["probe"], [module]))
"""


def start(body: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", LOOP.format(body=body)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def read_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout and process.stdout.readline() == "ready\n"


def test_a_closed_pipe_prints_no_error() -> None:
    process = start("print('x' * 1000)")
    read_ready(process)
    assert process.stdout and process.stderr
    process.stdout.close()
    assert process.wait(30) == 141
    assert process.stderr.read() == ""


def test_ctrl_c_stops_quietly() -> None:
    process = start("__import__('time').sleep(0.01)")
    read_ready(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "umdf: interrupted\n")


FAILING_OUTPUTS = {
    "a full disk": ("> /dev/full", "No space left on device; free some space, or write elsewhere"),
    "a closed stdout": (">&-", "Bad file descriptor; stdout is closed; redirect it, for example with > FILE"),
}
# Little is printed here, so the error comes with the last flush; of the loop, in the middle.
SPEAKING = {
    "version": "--version",
    "help": "--help",
    "help of a command": "decode --help",
    "a table": "doctor",
    "JSON": "--version --json",
}


def in_shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True)


@pytest.mark.parametrize("output", FAILING_OUTPUTS)
@pytest.mark.parametrize("spoken", SPEAKING)
def test_unwritable_output_is_a_one_line_error(output: str, spoken: str) -> None:
    redirect, reason = FAILING_OUTPUTS[output]
    done = in_shell(f"{shlex.join(UMDF)} {SPEAKING[spoken]} {redirect}")
    said = done.stderr
    if "--json" in SPEAKING[spoken]:
        found = json.loads(said)
        said = f"umdf: {found['error']}; {found['hint']}\n"
    assert (done.returncode, said) == (3, f"umdf: cannot write the output: {reason}\n")


@pytest.mark.parametrize("output", FAILING_OUTPUTS)
def test_an_output_that_is_full_while_a_command_prints_stops_it(output: str) -> None:
    redirect, reason = FAILING_OUTPUTS[output]
    done = in_shell(f"{shlex.join([sys.executable, '-c', LOOP.format(body='print(1)')])} {redirect}")
    assert (done.returncode, done.stderr) == (3, f"umdf: cannot write the output: {reason}\n")


def test_a_closed_stdout_does_not_matter_if_nothing_is_printed(tmp_path: Path) -> None:
    """And its descriptor is not given to a file that is then opened, which would get what others print."""
    quiet = "print(open(1, closefd=False).readable(), file=open('out', 'w')); raise SystemExit(0)"
    probe = LOOP.format(body="pass").replace('print("ready", flush=True)', quiet)
    done = subprocess.run(["bash", "-c", f"{shlex.join([sys.executable, '-c', probe])} >&-"], cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "out").read_text() == "True\n"


def test_without_stderr_the_exit_code_remains() -> None:
    for redirect in ("2> /dev/full", "2>&-"):
        done = in_shell(f"{shlex.join(UMDF)} nonsense {redirect}")
        assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_a_file_that_takes_no_more_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "day.json")
    assert run(["probe"], [failing(error)]) == 3
    assert capsys.readouterr().err.startswith("umdf: cannot write day.json: No space left on device; free some space")


STEERING = "a\x1b[31m\x07\rb\x9bc\u202ed\udcff\n"


def test_control_characters_in_errors_and_warnings_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    run(["probe"], [failing(CaptureError(STEERING))])
    assert capsys.readouterr().err == "umdf: a\\x1b[31m\\x07\\rb\\x9bc\\u202ed\\xff\\n\n"
    Printer().warn(STEERING)
    assert capsys.readouterr().err == "umdf: warning: a\\x1b[31m\\x07\\rb\\x9bc\\u202ed\\xff\\n\n"


def test_json_reads_back_and_has_no_control_characters() -> None:
    value = {STEERING: [STEERING, "São Paulo", "\U000e0001", 1, None]}
    text = json_text(value)
    assert text.isprintable() and "São Paulo" in text and json.loads(text) == value
