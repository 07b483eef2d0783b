"""Each check, on a machine that is fine and on one that is not."""

from __future__ import annotations

import stat
from importlib import metadata
from pathlib import Path

import pytest

from umdf import doctor
from umdf.doctor import Status


def test_this_machine_can_be_examined_and_nothing_is_bad() -> None:
    findings = doctor.run_checks()
    assert len({finding.check for finding in findings}) == len(doctor.CHECKS)
    assert [finding for finding in findings if finding.status is Status.ERROR] == []
    assert [finding for finding in findings if finding.status is Status.WARN and not finding.fix] == []


@pytest.mark.parametrize(
    ("version", "system", "machine", "status"),
    [
        ((3, 11, 0), "Linux", "x86_64", Status.OK),
        ((3, 14, 1), "Linux", "x86_64", Status.OK),
        ((3, 12, 0), "Linux", "aarch64", Status.WARN),
        ((3, 12, 0), "Darwin", "x86_64", Status.WARN),
        ((3, 10, 9), "Linux", "x86_64", Status.ERROR),
    ],
)
def test_python(version: tuple[int, ...], system: str, machine: str, status: Status) -> None:
    assert doctor.python(version, system, machine).status is status


def test_a_missing_and_an_old_package_are_bad_and_the_fix_names_both() -> None:
    def version_of(name: str) -> str:
        if name == "gone":
            raise metadata.PackageNotFoundError(name)
        return {"old": "1.0", "fine": "2.1"}[name]

    finding = doctor.packages(["gone>=1", "old>=2,<3", "fine>=2", 'pyspark==4.3.0; extra == "spark"'], version_of)
    assert finding.status is Status.ERROR
    assert finding.details == "gone is missing, old is 1.0"
    assert finding.fix == "pip install 'gone>=1' 'old<3,>=2'"
    assert doctor.packages(["fine>=2"], version_of).status is Status.OK


LAKES = ["numpy>=2", 'deltalake>=1; extra == "lake"', 'deltalake>=1; extra == "spark"', 'pyspark==4; extra == "spark"']


@pytest.mark.parametrize(
    ("there", "status", "found", "fix"),
    [
        ({"deltalake": "1.6", "pyspark": "4"}, Status.OK, "with and without Spark", ""),
        (
            {"deltalake": "1.6"},
            Status.WARN,
            "only without Spark: pyspark is missing",
            "pip install 'umdf[spark]' for lakes on Spark",
        ),
        (
            {},
            Status.WARN,
            "not available: deltalake is missing, pyspark is missing",
            "pip install 'umdf[lake]' for lakes without Spark; pip install 'umdf[spark]' for lakes on Spark",
        ),
    ],
)
def test_a_base_install_gets_the_name_of_the_extra_for_lakes(
    there: dict[str, str], status: Status, found: str, fix: str
) -> None:
    def version_of(name: str) -> str:
        if name not in there:
            raise metadata.PackageNotFoundError(name)
        return there[name]

    assert doctor.extras(LAKES, version_of) == doctor.Finding("lakes", status, found, fix)


def java_saying(directory: Path, text: str, code: int = 0) -> Path:
    """A stand-in for a Java installation: what counts is what `java -version` says on stderr."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {code}\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return directory


@pytest.mark.parametrize(
    ("said", "status", "found"),
    [
        ('openjdk version "21.0.8" 2025-07-15', Status.OK, "Java 21 (JAVA_HOME)"),
        ('openjdk version "17.0.1" 2021-10-19', Status.OK, "Java 17 (JAVA_HOME)"),
        ('java version "1.8.0_291"', Status.WARN, "Java 8 (JAVA_HOME)"),
        ('openjdk version "25" 2025-09-16', Status.WARN, "Java 25 (JAVA_HOME)"),
    ],
)
def test_java_is_judged_by_its_release(said: str, status: Status, found: str, tmp_path: Path) -> None:
    finding = doctor.java({"JAVA_HOME": str(java_saying(tmp_path / "jdk", said))})
    assert (finding.status, finding.details) == (status, found)


def test_java_home_goes_before_path_and_a_broken_one_is_a_warning(tmp_path: Path) -> None:
    good = java_saying(tmp_path / "good", 'openjdk version "21"')
    broken = java_saying(tmp_path / "broken", "segfault", code=1)
    assert doctor.java({"PATH": str(good / "bin")}).details == "Java 21 (PATH)"
    for home in (broken, tmp_path / "nowhere"):
        finding = doctor.java({"JAVA_HOME": str(home), "PATH": str(good / "bin")})
        assert finding.status is Status.WARN and str(home) in finding.details


def test_receive_buffers() -> None:
    assert doctor.receive_buffers(lambda wanted: wanted).status is Status.OK
    finding = doctor.receive_buffers(lambda wanted: 212_992)
    assert finding.status is Status.WARN and "net.core.rmem_max=4194304" in finding.fix


def test_multicast() -> None:
    assert doctor.multicast(lambda: "").status is Status.OK
    finding = doctor.multicast(lambda: "No such device")
    assert finding.status is Status.WARN and "No such device" in finding.details


def test_small_machines_and_low_limits_are_warnings() -> None:
    assert doctor.processors(2, 8 << 30).status is Status.OK
    assert doctor.processors(1, 8 << 30).status is Status.WARN
    assert doctor.processors(2, 1 << 30).status is Status.WARN
    assert doctor.open_files(1024).status is Status.OK
    assert doctor.open_files(-1).status is Status.OK
    assert doctor.open_files(256).fix == "ulimit -n 1024"
