"""Writes the lists of docs/access.md and a module: the commands that the ACL of a Redis user must allow for each verb.

Commands are extracted from the scripts and modules of each verb, which are listed here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from textwrap import fill
from typing import Final

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.errors import ScriptError
from spark_bull.core.store.scripts import load

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "spark_bull"
PAGE: Final = ROOT / "docs" / "access.md"
MODULE: Final = PACKAGE / "ops" / "cli" / "doctor" / "verb_commands.py"
#: Commands that redis-py sends when it connects; CLIENT SETINFO may be denied.
CONNECTING: Final = {"PING", "INFO", "HELLO", "CLIENT|SETNAME", "CLIENT|ID", "EVAL", "EVALSHA"}
#: Words in capitals in scripts that are arguments of a command or part of an error.
ARGUMENTS: Final = frozenset(
    (
        "BEFORE",
        "BLOCK",
        "CLUSTERDOWN",
        "COUNT",
        "KEEPTTL",
        "LEFT",
        "LIMIT",
        "MATCH",
        "MAXLEN",
        "NOREPLICAS",
        "RANK",
        "RIGHT",
        "STREAM",
        "STREAMS",
        "WRONGTYPE",
    )
) | {"WITHSCORES", "WITHVALUES"}
#: The scripts of all writes.
WRITING: Final = tuple(
    f"write/{name}" for name in ("stage", "register", "prepare", "confirm", "open", "discard", "pass")
)
#: The modules that stage writes, roll them forward and read their records.
WRITES: Final = tuple(f"core/queue/dispatch/{name}" for name in ("roll_forward", "write_records"))
#: The module that looks for lost writes.
LOSSES: Final = "core/queue/dispatch/roll_forward"
#: Verb -> the modules that send its commands, or `module:definition`, and its scripts.
VERBS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "all": (("core/store/connection", "core/dialects/registry", "core/queue/monitor/find"), ("read/queues",)),
    "dispatch": (
        (
            "core/queue/dispatch/add",
            "core/queue/handle/admission",
            "core/queue/dispatch/add",
            *WRITES,
            LOSSES,
        ),
        (
            *("add", "add_flows", "commit", "commit_flows", "commit_managed", "empty", "advance"),
            *WRITING,
            *("open_callback", "close_callback", "drop_callback"),
        ),
    ),
    "inspect": (
        (
            *(f"core/queue/{name}" for name in ("jobs/children",)),
            *WRITES,
            *(
                f"core/queue/{name}"
                for name in (
                    "handle/job_fields",
                    "monitor/activity",
                    "jobs/read",
                    "events/event_log:recent_events",
                    "monitor/stats",
                    "handle/walk",
                )
            ),
            "spark/inspect/views",
        ),
        ("read/find", "read/groups", "read/jobs", "read/metrics"),
    ),
    "process": (
        (
            *(f"core/queue/{name}" for name in ("manage/cancel", "jobs/children", "work/claim", "work/claim_ledger")),
            *(f"core/queue/{name}" for name in ("handle/job_fields", "dispatch/add", "jobs/read", "handle/report")),
            *(f"core/queue/{name}" for name in ("schedule/advance", "handle/walk")),
            *WRITES,
            *(f"core/dialects/{name}" for name in ("base", "bull", "bullmq")),
            *(
                f"run/{name}"
                for name in (
                    "claims/waits",
                    "slot/slot_queue",
                    "slot/slot_control",
                    "slot/slot_queue",
                    "slot/slot_report",
                    "slot/status",
                )
            ),
            *(
                "run/services/service",
                "core/store/round_trips:StreamReader",
                "core/queue/call/caller",
                "core/queue/handle/handle",
                LOSSES,
            ),
            *(f"spark/work/{name}" for name in ("spark_engine", "settle/task", "process_batch")),
        ),
        (
            *(
                "work",
                "work_and_add",
                "progress",
                "promote_due",
                "expire",
                "rescue",
                "age",
                "guard",
                "empty",
                "advance",
            ),
            *("commit", "commit_managed", "write/open"),
            *("job/claimed", "job/start", "job/extend", "job/relock", "job/log", "job/update_data"),
            "queues/forget",
            *("job/free_deduplication", "open_callback", "close_callback", "gather_calls", "sweep_calls"),
        ),
    ),
    "collect": (
        (
            "core/queue/handle/job_fields",
            "core/queue/collect/result_ledger",
            "core/queue/collect/result_rows",
            "core/queue/jobs/objects",
            "run/services/queue_collector",
            "core/store/round_trips:StreamReader",
            LOSSES,
        ),
        ("discover", "archive", "results/open", "results/horizon", "results/cut"),
    ),
    "call": (
        ("core/queue/call/caller",),
        ("add_calls", "hold_calls", "end_calls", "gather_calls", "sweep_calls"),
    ),
    "events": (
        ("core/queue/events/events", "core/queue/events/waiting", "core/store/round_trips:StreamReader"),
        ("publish", "read/event_span", "read/event_page", "read/event_step"),
    ),
    # To read; writing also needs the rights of other verbs.
    "serve": (
        (
            *(
                f"core/queue/{name}"
                for name in (
                    "jobs/children",
                    "events/events",
                    "handle/admission:intake_check",
                    "manage/limits",
                )
            ),
            *(
                f"core/queue/{name}"
                for name in (
                    "handle/job_fields",
                    "monitor/activity",
                    "jobs/portions",
                    "monitor/find",
                    "jobs/read",
                )
            ),
            *(
                f"core/queue/{name}"
                for name in (
                    "events/event_log:recent_events",
                    "schedule/schedulers",
                    "monitor/stats",
                    "handle/walk",
                )
            ),
            *WRITES,
            *("core/store/round_trips:StreamReader", "run/slot/status"),
        ),
        ("read/after", "read/find", "read/groups", "read/jobs", "read/metrics"),
    ),
    "schedule": (
        (
            "core/queue/schedule/schedulers",
            "core/queue/schedule/advance",
            *WRITES,
            "core/queue/handle/admission",
            LOSSES,
        ),
        ("schedule", "unschedule", "commit_schedules", *WRITING),
    ),
    "manage": (
        (
            *(
                f"core/queue/{name}"
                for name in (
                    "manage/manage",
                    "manage/manage",
                    "handle/admission",
                    "manage/limits",
                    "managing",
                    "reading",
                )
            ),
            *(
                f"core/queue/{name}"
                for name in ("handle/report", "events/event_log:trim_events", "manage/leftovers", "monitor/find")
            ),
            "core/queue/jobs/objects",
            *(f"core/queue/{name}" for name in ("handle/job_fields", "jobs/read", "handle/walk")),
            *WRITES,
            "core/queue/handle/admission",
            "core/queue/manage/bulk",
            LOSSES,
        ),
        (
            *("manage", "check_managed", "commit_managed", "write/abort", *WRITING),
            "set_limits",
            "change_groups",
            "pause",
            "resume",
            "remove",
            "clean",
            "drain",
            "obliterate",
            "remove_child_dependency",
            "remove_unprocessed_children",
            "job/cancel",
            "job/remove_orphans",
            "job/free_deduplication",
            *("read/find", "read/groups", "read/jobs", "read/unplaced"),
        ),
    ),
    "doctor": (
        (
            *(f"ops/cli/doctor/{name}" for name in ("queues", "server")),
            *(
                f"core/queue/{name}"
                for name in (
                    "monitor/find",
                    "manage/leftovers",
                    "jobs/read",
                    "schedule/schedulers",
                    "handle/walk",
                )
            ),
            *WRITES,
        ),
        ("read/find", "read/jobs", "read/unlocked", "read/unplaced"),
    ),
}
#: What is needed beside the verbs, as VERBS: of each node of a cluster, and of a user of the Sentinels alone.
PLACES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "cluster": (("core/store/servers", "core/store/round_trips:_is_lost"), ()),
    "sentinel": ((), ()),
}
#: Commands sent by methods of redis-py: for subscriptions, and for the list of connections.
BY_METHODS: Final = {
    "inspect": {"CLIENT|LIST"},
    "process": {"SUBSCRIBE", "UNSUBSCRIBE"},
    "events": {"SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE"},
    "collect": {"CLIENT|LIST"},
    "serve": {"CLIENT|LIST", "SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE"},
    "doctor": {"COMMAND|INFO", "MULTI"},
    "sentinel": {"SENTINEL|MASTERS"},
}
_HEAD: Final = '''"""The commands of each verb, as in docs/access.md; written by tools/access_table.py."""

from __future__ import annotations

from typing import Final

COMMANDS: Final = {'''
_BLOCK: Final = re.compile(r"(<!-- access(?: of a (\w+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def commands_of(verb: str) -> list[str]:
    """Returns the commands to allow for a verb, without those for all verbs."""
    modules, scripts = (VERBS | PLACES)[verb]
    found = {command for name in scripts for source in _sources(name) for command in _in_script(source)}
    found |= {command for name in modules for command in _in_module(_module_source(name))}
    found |= BY_METHODS.get(verb, set())
    if verb == "all":
        found |= CONNECTING
    else:
        found -= set(_upper(commands_of("all")))
    return sorted(f"+{command.lower()}" for command in found)


def _upper(allowed: Iterable[str]) -> list[str]:
    return [command[1:].upper() for command in allowed]


def _sources(name: str) -> list[str]:
    """Returns the source of a script without comments; for a verb of the dialects, of all its scripts."""
    if "/" in name:
        return [_code_of(name)]
    sources = []
    for dialect in DIALECTS.values():
        with suppress(ScriptError):  # The dialect lacks this verb.
            sources.append(_code_of(f"{dialect.folder}/{name}"))
    assert sources, f"expected a script `{name}` of some dialect, found none"
    return sources


def _code_of(name: str) -> str:
    return re.sub(r"--.*", "", load(name).source)


def _in_script(source: str) -> set[str]:
    return set(re.findall(r"'([A-Z]{3,})'", source)) - ARGUMENTS


def _module_source(name: str) -> str:
    """Returns the source of a module, or of a definition in it."""
    path, _, definition = name.partition(":")
    source = (PACKAGE / f"{path}.py").read_text("utf-8")
    if not definition:
        return source
    (node,) = [one for one in ast.parse(source).body if getattr(one, "name", None) == definition]
    return ast.get_source_segment(source, node) or ""


def _in_module(source: str) -> set[str]:
    """Finds commands by their position: after `call(`, in a tuple of a pipeline, or in a conditional expression."""
    found = re.findall(r'(?:\(|= |: |else |Command = \(|call\(\n\s*)"([A-Z]{3,})"(?:, "([A-Z]+)")?', source)
    return {
        f"{name}|{second}" if name in ("CLIENT", "CLUSTER", "CONFIG", "MEMORY") else name for name, second in found
    } - ARGUMENTS


def lists(verbs: Iterable[str]) -> str:
    return "\n".join(f"- {verb}: `{' '.join(commands_of(verb))}`" for verb in verbs)


def with_lists(text: str) -> str:
    return _BLOCK.sub(lambda match: f"{match[1]}{lists([match[2]] if match[2] else VERBS)}\n{match[3]}", text)


def module() -> str:
    """The module with which `spark-bull doctor` checks rights."""
    texts = {verb: " ".join(name[1:] for name in commands_of(verb)) for verb in (*VERBS, "cluster")}
    rows = [f'    "{verb}": """\n{fill(text, 118, break_on_hyphens=False)}\n""",' for verb, text in texts.items()]
    return "\n".join([_HEAD, *rows, "}", ""])


if __name__ == "__main__":
    PAGE.write_text(with_lists(PAGE.read_text("utf-8")), "utf-8")
    MODULE.write_text(module(), "utf-8")
