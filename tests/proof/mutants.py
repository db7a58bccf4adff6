"""Errors planted in copies of the scripts, each of which the checkers of histories must find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.proof.altered_scripts import Alteration

Workload = Literal["writes", "work"]


@dataclass(frozen=True)
class Mutant:
    """error: what is wrong, for the table. workload, seed: the histories that show it, and the first one that did."""

    error: str
    workload: Workload
    alteration: Alteration
    seed: int

    def __str__(self) -> str:
        return self.error


def _in_writes(error: str, file: str, text: str, instead: str = "", seed: int = 0) -> Mutant:
    return Mutant(error, "writes", Alteration(file, text, instead), seed)


def _in_work(error: str, file: str, text: str, instead: str = "", seed: int = 0) -> Mutant:
    return Mutant(error, "work", Alteration(file, text, instead), seed)


MUTANTS = [
    _in_writes("a registered write does not keep its stages", "write/register", "call('PERSIST', stage.key)"),
    _in_writes(
        "writes are ordered by a clock that is put back",
        "lib/writes",
        "last and math.max(now, tonumber(last) + 1) or now",
        "now",
    ),
    _in_writes(
        "the version of a repeated write is ignored",
        "lib/writes",
        "return done and tonumber(done) >= tonumber(version) and {'replayed'}",
        "return nil",
        seed=1,
    ),
    _in_writes(
        "a failed driver discards a registered write",
        "write/discard",
        "if state and state ~= 'prepared' then",
        "if false then",
        seed=7,
    ),
    _in_writes("a write that was given up can be registered", "write/decide", "call('HSET', key.write, 'deadline', 0)"),
    _in_writes("a late task stages into a registered write", "write/stage", "if ttl == -1 then", "if false then"),
    _in_writes(
        "a commit leaves the chunk that it has added",
        "lib/writes",
        "call('HDEL', stage, number)",
        "call('HLEN', stage)",
    ),
    _in_work("an add that is sent again adds again", "lib/once", "if kept[1] == call_id then", "if false then", seed=1),
    _in_work("a claim that is sent again claims again", "lib/claim_jobs", "if last and", "if false and", seed=10),
    _in_work(
        "an outcome is accepted from a worker that has lost the lock",
        "lib/rescue",
        "local is_owned = held[i] == (others[id] or token)",
        "local is_owned = held[i]",
    ),
    _in_work(
        "jobs with a lock are rescued",
        "lib/once",
        "if call('EXISTS', arg.base .. id .. ':lock') == 0 then",
        "if true then",
    ),
    _in_work(
        "a lock is extended for a worker that has lost it",
        "job/extend",
        "if held[i] == arg.lock_token then",
        "if held[i] then",
        seed=1,
    ),
    _in_work(
        "a finished job is discovered in every look", "lib/results", "if known[i] ~= time then", "if true then", seed=2
    ),
    _in_work(
        "a job that was retried is deleted with its old result",
        "lib/results",
        "unchanged[i] = time == times[i]",
        "unchanged[i] = true",
        seed=22,
    ),
]
