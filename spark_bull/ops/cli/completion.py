"""`spark-bull completion`: prints the script with which a shell completes this command."""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Iterator
from typing import Final

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import ConnectionLost
from spark_bull.core.queue.monitor.find import scan_queues
from spark_bull.core.store.connection import Connection
from spark_bull.ops.cli.arguments import argument
from spark_bull.ops.cli.command import Output, command, options_of

SHELLS: Final = ("bash", "zsh", "fish")
#: In place of a shell: prints names of queues, which the scripts call.
_QUEUES: Final = "queues"
_NAMES: Final = f"spark-bull completion {_QUEUES} 2>/dev/null"
#: For shtab: how shells get names of queues when they are wanted; zsh would run `shtab.cmd` when it starts.
_NAMES_OF_QUEUES: Final = {
    "bash": "_spark_bull_queues",
    "zsh": "_spark_bull_queues",
    "fish": f"({_NAMES})",
    "preamble": {
        # compgen -W would run what a name has in $(…).
        "bash": f"_spark_bull_queues() {{ {_NAMES} | while IFS= read -r name; do "
        '[[ $name == "$1"* ]] && printf "%s\\n" "$name"; done; }',
        "zsh": f'_spark_bull_queues() {{ compadd -- ${{(f)"$({_NAMES})"}} }}',
    },
}
#: Arguments that are names of queues.
_OF_QUEUES: Final = frozenset({"queue", "queues", "glob", "to"})
#: For how long names of queues are searched, s.
_PATIENCE_S: Final = 0.5


def _completion(args: Namespace) -> Output:
    if args.shell == _QUEUES:
        return "\n".join(_found_queues(args)) or None
    # Imported here, as no other command needs it.
    import shtab

    root: ArgumentParser = args.whole()
    for action in _actions(root):
        if action.dest in _OF_QUEUES and action.choices is None:
            action.complete = _NAMES_OF_QUEUES  # type: ignore[attr-defined]
    return shtab.complete(root, args.shell).rstrip("\n")


def _found_queues(args: Namespace) -> list[str]:
    """Names of queues that are found at once: the user waits. Nothing if Redis is not reached."""
    timeout_ms = int(_PATIENCE_S * 1_000)
    options = options_of(args, callTimeoutMs=timeout_ms, retryMs=0)
    end, found = monotonic_s() + _PATIENCE_S, set[str]()
    try:
        for name in scan_queues(Connection(options.redis), options.prefix):
            found.add(name)
            if monotonic_s() > end:
                break
    except ConnectionLost:
        pass
    return sorted(found)


def _actions(parser: ArgumentParser) -> Iterator[Action]:
    """The arguments of a parser and of its commands."""
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for of_command in action.choices.values():
                yield from _actions(of_command)
        else:
            yield action


COMMANDS: Final = (
    command(
        "completion",
        "print the completion script of bash, zsh or fish",
        "completion bash > ~/.local/share/bash-completion/completions/spark-bull",
        _completion,
        argument("shell", choices=(*SHELLS, _QUEUES), help="bash, zsh or fish; queues prints names of queues"),
        of_queue=False,
    ),
)
