"""Whether a module's answer may be taken. Pure.

An answer is not trusted: anything may come. Only what differs from the original is checked; what the plan
has itself stays, whatever it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from corral.daemon.hooks.start_changes import Edits, StartChange
from corral.daemon.prepare.prepared_start import StartRules, StartValues
from corral.daemon.workload.environment import check_names
from corral.daemon.workload.java import refusal
from corral.errors import Rejected

MOST_ITEMS: Final = 500
"""Added by one module: arguments and variables together."""
LONGEST_ITEM: Final = 8 * 1024
MOST_BYTES: Final = 128 * 1024
BLOCKED_NAMES: Final = frozenset(
    {
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "_JAVA_OPTIONS",
        "IBM_JAVA_OPTIONS",
        "OPENJ9_JAVA_OPTIONS",
        "CLASSPATH",
        "BASH_ENV",
        "ENV",
        "SHELLOPTS",
        "BASHOPTS",
        "PS4",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "PERL5LIB",
        "PERL5OPT",
        "PERL5DB",
        "RUBYLIB",
        "RUBYOPT",
        "NODE_OPTIONS",
        "NODE_PATH",
        "LUA_INIT",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        "PATH",
        "IFS",
        "DOTNET_STARTUP_HOOKS",
        "DOTNET_ADDITIONAL_DEPS",
        "DOTNET_SHARED_STORE",
        "MONO_PATH",
        "OPENSSL_CONF",
        "OPENSSL_ENGINES",
        "OPENSSL_MODULES",
        "PYTHONUSERBASE",
        "PYTHONEXECUTABLE",
        "PERLLIB",
        "GEM_HOME",
        "GEM_PATH",
        "BUNDLE_GEMFILE",
        "PHPRC",
        "PHP_INI_SCAN_DIR",
        "ERL_FLAGS",
        "ERL_LIBS",
    }
)
"""They have a program, an interpreter or a virtual machine load what its command does not name, or choose which
program that is. Those that are known: `HOME` is not among them, though some programs look there for what to load."""
BLOCKED_BEGINNINGS: Final = (
    "LD_", "DYLD_", "BASH_FUNC_", "LUA_INIT_", "LUA_PATH", "LUA_CPATH", "CORECLR_", "COR_",
)  # fmt: skip
_FIELDS: Final = ("jvm_args", "args", "env")


class BadChange(Exception):
    """The whole answer is dropped; the text is the reason."""


def read_answer(answer: object, original: StartValues) -> StartValues:
    """The values in an answer. What it leaves out is unchanged."""
    if not isinstance(answer, Mapping):
        raise BadChange(f"its answer is a {type(answer).__name__} and no map")
    given = {field: answer.get(field, getattr(original, field)) for field in _FIELDS}
    return StartValues(
        jvm_args=_words(given, "jvm_args", original.jvm_args),
        args=_words(given, "args", original.args),
        env=_variables(given["env"], original.env),
    )


def check_change(change: StartChange, rules: StartRules, secrets: Mapping[str, str] = {}) -> None:
    """BadChange unless all of it may be taken. `secrets`: values by their variables."""
    _check_texts(change)
    for name, value in secrets.items():
        if value and any(value in word for word in (*change.jvm_args.words, *change.args.words)):
            raise BadChange(f"it put the secret %{name}% into the command line, which every user can read")
    if change.jvm_args and not rules.takes_jvm_args:
        raise BadChange("it changed jvm_args of a workload that is no Java")
    for _, unit in change.jvm_args.added:
        if why := refusal(unit):
            raise BadChange(f"it added to jvm_args {why}")
    _check_places(change.args, rules.fixed_args)
    _check_names(change.env_set)


def _words(given: Mapping[str, Any], field: str, original: tuple[str, ...]) -> tuple[str, ...]:
    found = given[field]
    if not isinstance(found, list | tuple):
        raise BadChange(f"{field} is a {type(found).__name__} and no list")
    if len(found) > len(original) + MOST_ITEMS:
        raise BadChange(f"it added more than {MOST_ITEMS} items")
    for word in found:
        if not isinstance(word, str):
            raise BadChange(f"{field} holds a {type(word).__name__}; only texts may be in it")
    return tuple(found)


def _variables(found: object, original: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(found, Mapping):
        raise BadChange(f"env is a {type(found).__name__} and no map")
    if len(found) > len(original) + MOST_ITEMS:
        raise BadChange(f"it added more than {MOST_ITEMS} items")
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise BadChange("env holds something else than texts")
    return dict(found)


def _check_places(args: Edits, fixed: int | None) -> None:
    """Behind `java` an argument may be an option of the launcher, or name what is run."""
    touched = [*args.removed, *(place for place, _ in args.added)]
    if fixed is None and touched:
        raise BadChange("it changed args of a Java command whose program cannot be told from its options")
    if fixed and any(place < fixed for place in touched):
        raise BadChange("it changed args up to what is run; options of the JVM belong into jvm_args")


def _check_names(env: Mapping[str, str]) -> None:
    try:
        check_names(env)
    except Rejected as refused:
        raise BadChange(f"env: {refused}") from refused
    for name in env:
        if name in BLOCKED_NAMES or name.startswith(BLOCKED_BEGINNINGS):
            raise BadChange(f"it set the variable '{name[:80]}', which modules may not set")


def _check_texts(change: StartChange) -> None:
    """Checked first: later errors quote these texts."""
    named = [(f"'{word[:40]}'", word) for word in (*change.jvm_args.words, *change.args.words)]
    named += [(f"the variable '{name[:40]}'", f"{name}={value}") for name, value in change.env_set.items()]
    if len(named) > MOST_ITEMS:
        raise BadChange(f"it added more than {MOST_ITEMS} items")
    total = 0
    for name, item in named:
        if "\0" in item or "\n" in item:
            raise BadChange(f"{name!a} holds a line break or a NUL")
        size = _size(name, item)
        total += size
        if size > LONGEST_ITEM:
            raise BadChange(f"{name} is longer than {LONGEST_ITEM // 1024} KiB")
    if total > MOST_BYTES:
        raise BadChange(f"it added more than {MOST_BYTES // 1024} KiB in all")


def _size(name: str, item: str) -> int:
    try:
        return len(item.encode())
    except UnicodeEncodeError:
        raise BadChange(f"{name!a} holds half a character") from None
