"""Settings from one TOML file: flags > file > default. One table per command, its keys named as the command's flags.

    debug = false

    [decode]
    format = "json"

The whole file is checked before anything runs: a key that no command has is a mistake, and the nearest one is named.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import typer

from umdf.errors import ConfigError, did_you_mean

DEFAULT_FILE = Path("umdf.toml")
NOT_SETTINGS = frozenset({"help", "version", "config"})


def read_settings(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"settings file not found: {file}", "check --config") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8", "a settings file is TOML") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: invalid TOML: {error}", "fix the file") from error


def defaults(file: Path, command: Any, settings: dict[str, Any], table: str = "") -> dict[str, Any]:
    """The settings as defaults keyed by parameter name, nested by command; rejects what the command does not have."""
    commands: dict[str, Any] = getattr(command, "commands", {})
    options = {setting_name(option): option for option in command.params if _is_setting(option)}
    result: dict[str, Any] = {}
    for key, value in settings.items():
        key_path = f"{table}.{key}" if table else key
        if key in commands and isinstance(value, dict):
            result[key] = defaults(file, commands[key], value, key_path)
        elif key in options:
            option = options[key]
            if expected := _expected_type(option, value):
                raise ConfigError(f"{file}: {key_path} is {_toml_text(value)}, expected {expected}", "fix the file")
            result[option.name] = value
        elif key in commands:
            raise ConfigError(f"{file}: {key} is a command, not a setting", f"write it as a table: [{key_path}]")
        else:
            raise ConfigError(f"{file}: unknown {'table' if isinstance(value, dict) else 'setting'}: {key_path}",
                              _suggestion(key, [*commands, *options]))  # fmt: skip
    return result


def attribute_to_file(error: BaseException, file: Path | None) -> BaseException:
    """The error, attributed to the file if the rejected value came from the file."""
    param, ctx = getattr(error, "param", None), getattr(error, "ctx", None)
    if file is None or param is None or ctx is None or not isinstance(error, typer.TyperException):
        return error
    source = ctx.get_parameter_source(param.name)
    if source is None or source.name != "DEFAULT_MAP":
        return error
    table = ".".join(ctx.command_path.split()[1:])
    return ConfigError(f"{file}: {table}.{setting_name(param)}: {' '.join(error.message.split())}", "fix the file")


def setting_name(option: Any) -> str:
    """A setting is named as its flag: --line-timeout-s is line_timeout_s."""
    return max(option.opts, key=len).lstrip("-").replace("-", "_")


def _is_setting(param: Any) -> bool:
    return param.param_type_name == "option" and setting_name(param) not in NOT_SETTINGS


def _expected_type(option: Any, value: Any) -> str:
    """The type that the option expects if `value` does not have it; else empty."""
    descriptor = option.type_descriptor
    if descriptor.is_list:
        items = value if isinstance(value, list) else [None]
        faults = {_expected_item_type(descriptor, get_args(descriptor.annotation)[0], item) for item in items} - {""}
        return f"a list of {faults.pop().partition(' ')[2]}s" if faults else ""
    return _expected_item_type(descriptor, descriptor.annotation, value)


def _expected_item_type(descriptor: Any, annotation: Any, value: Any) -> str:
    if descriptor.is_choice:
        names = [str(getattr(choice, "value", choice)) for choice in descriptor.choices]
        return "" if value in names else f"one of {', '.join(names)}"
    if annotation is bool:
        return "" if isinstance(value, bool) else "a boolean (true or false)"
    if annotation is int:
        return "" if isinstance(value, int) and not isinstance(value, bool) else "an integer"
    if annotation is float:
        return "" if isinstance(value, int | float) and not isinstance(value, bool) else "a number"
    return "" if isinstance(value, str) else "a string"


def _toml_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else {dict: "a table", list: "a list"}.get(type(value), str(value))


def _suggestion(key: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(key.replace("-", "_"), names, n=2)
    return did_you_mean(close) if close else f"known: {', '.join(names) or 'none'}"
