"""How texts are kept: sealed, stored, both or neither; and how they open again."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_bull.core.errors import OptionError, PayloadNotStored, PayloadUnreadable
from spark_bull.core.keys import QueueKeys
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import ReadOptions, WriteOptions
from spark_bull.core.options.values import KeySource
from spark_bull.core.payloads.objects import found_in
from spark_bull.core.payloads.policy import PLAIN, PayloadPolicy, policy_of

MAIL = QueueKeys("mail", "bull")
ROOT = "memory://spark-bull-tests"
LARGE = json.dumps({"text": "x" * 200})


@pytest.fixture
def key(tmp_path: Path) -> KeySource:
    (tmp_path / "key").write_bytes(b"k" * 32)
    return KeySource("a", "file", str(tmp_path / "key"))


@pytest.fixture
def root() -> Iterator[str]:
    yield ROOT
    system = fsspec.filesystem("memory")
    if system.exists("/spark-bull-tests"):
        system.rm("/spark-bull-tests", recursive=True)


def unreadable(
    policy: PayloadPolicy, text: str, said: str, keys: QueueKeys = MAIL, of: str = "data"
) -> PayloadUnreadable:
    """The error of a text of job 7 that does not open."""
    with pytest.raises(PayloadUnreadable, match=said) as found:
        policy.opened(keys, of, "7", text)
    return found.value


def objects() -> list[str]:
    return sorted(found.path for found in found_in(ROOT, "bull/mail"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 100), st.booleans())
def test_what_is_kept_opens_again(key: KeySource, root: str, text: str, above: int, sealing: bool) -> None:
    policy = PayloadPolicy((key,) if sealing else (), root, above)
    text = json.dumps(text)
    kept = policy.sealed(MAIL, "data", text, "write:1")
    assert policy.opened(MAIL, "data", "7", kept) == text
    assert policy.sealed(MAIL, "data", text, "write:1") == kept
    assert kept == text or [*json.loads(kept)] in (["$sealed"], ["$stored"])


def test_hashes_of_sealed_texts_have_a_key_for_their_purpose(key: KeySource, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"o" * 32)
    other = KeySource("b", "file", str(tmp_path / "other"))
    one = PayloadPolicy((key, other)).hash_key("call")
    assert len(one) == 32
    assert one == PayloadPolicy((key,)).hash_key("call")
    assert one not in (PayloadPolicy((other, key)).hash_key("call"), PayloadPolicy((key,)).hash_key("x"))
    assert PLAIN.hash_key("call") == PayloadPolicy(root=ROOT).hash_key("call") == b""


def test_a_plain_policy_changes_nothing_and_shows_what_is_there(key: KeySource, root: str) -> None:
    sealed, kept = (PayloadPolicy((key,), root, above).sealed(MAIL, "data", LARGE, "1") for above in (None, 100))
    for text in (LARGE, sealed):
        assert PLAIN.sealed(MAIL, "data", text, "1") == text
    assert PLAIN.opened(MAIL, "data", "7", kept) == kept
    with pytest.raises(OptionError, match=r"without a member .* which mark the payload of another job"):
        PLAIN.sealed(MAIL, "data", kept, "1")
    # With the folder alone, the sealed text of the object is shown.
    assert [*json.loads(PayloadPolicy(root=root).opened(MAIL, "data", "7", kept))] == ["$sealed"]


def test_a_source_has_one_object_and_no_two_sources_share_one(key: KeySource, root: str) -> None:
    for policy in (PayloadPolicy((), root, 100), PayloadPolicy((key,), root, 100)):
        first = policy.sealed(MAIL, "data", LARGE, "write:1")
        assert policy.sealed(MAIL, "data", LARGE, "write:1") == first
        second = policy.sealed(MAIL, "data", LARGE, "write:2")
        assert len(objects()) == 2
        paths = policy.paths(MAIL, [first, second.encode(), None, LARGE])
        assert sorted(paths) == objects()
        texts = [fsspec.filesystem("memory").cat_file(f"/spark-bull-tests/{path}") for path in paths]
        assert any(b"xxxx" in text for text in texts) != bool(policy.keys)
        assert (policy.delete(paths), policy.delete(paths)) == (2, 0)


def test_only_texts_above_the_limit_with_a_source_are_stored(root: str) -> None:
    policy = PayloadPolicy((), root, len(LARGE))
    assert policy.sealed(MAIL, "data", LARGE, "1") == LARGE
    assert policy.sealed(MAIL, "data", LARGE + " ", None) == LARGE + " "
    assert policy.sealed(MAIL, "data", LARGE + " ", "1") != LARGE + " "


def test_the_name_of_a_queue_is_one_segment_as_encode_uri_component_makes_it(root: str) -> None:
    names = {"a/b": "a%2Fb", "..": "%2E%2E", ".": "%2E", "é ~!*'()": "%C3%A9%20~!*'()", "m{3}": "m"}
    for queue, folder in names.items():
        kept = PayloadPolicy((), root, 0).sealed(QueueKeys(queue, "bull"), "data", "1", "1")
        assert json.loads(kept)["$stored"]["path"].startswith(f"bull/{folder}/")


def test_a_payload_of_a_shard_opens_in_another_one_and_in_no_other_queue_or_field(key: KeySource, root: str) -> None:
    policy, shard = PayloadPolicy((key,), root, 500), QueueKeys("mail{0}", "bull")
    for text in ("{}", json.dumps("x" * 1000)):
        kept = policy.sealed(shard, "data", text, "1")
        assert policy.opened(QueueKeys("mail{1}", "bull"), "data", "7", kept) == text
        for queue, prefix in (("news", "bull"), ("mail", "other")):
            unreadable(policy, kept, f"expected `data` of job 7 of queue {queue} to", QueueKeys(queue, prefix))
        said = "expected `returnvalue` of job 7 of queue mail to open with key 'a'"
        unreadable(policy, kept, said, of="returnvalue")


def test_a_path_outside_of_the_folder_of_the_queue_is_not_read(root: str) -> None:
    policy = PayloadPolicy((), root, 0)
    for path in ("../../etc/passwd", "bull/mail/../x", "bull/news/" + "0" * 64, "/etc/passwd", 7, None):
        forged = json.dumps({"$stored": {"v": 1, "path": path, "size": 1, "sha256": "0" * 64}}, separators=(",", ":"))
        unreadable(policy, forged, "be an object in the folder bull/mail/ of `offloadTo`, got path")
        assert policy.paths(MAIL, [forged]) == set()


def test_objects_that_are_gone_or_changed_are_named(root: str) -> None:
    policy = PayloadPolicy((), root, 100)
    kept = policy.sealed(MAIL, "data", LARGE, "1")
    (path,) = objects()
    fsspec.filesystem("memory").pipe_file(f"/spark-bull-tests/{path}", b"{}")
    unreadable(policy, kept, f"expected `data` of job 7 of queue mail to be the object {path}.*other")
    policy.delete([path])
    unreadable(policy, kept, f"job 7 of queue mail to be the object {path} in `offloadTo`, which is gone")


def test_an_error_of_the_file_system_is_named_without_its_message_and_may_pass(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = PayloadPolicy((), root, 100)
    kept = policy.sealed(MAIL, "data", LARGE, "1")
    (path,) = objects()

    def refuse(*_: object) -> bytes:
        raise PermissionError("password")

    for name in ("cat_file", "pipe_file"):
        monkeypatch.setattr(type(fsspec.filesystem("memory")), name, refuse)
    with pytest.raises(PayloadNotStored, match=r"to take the object bull/mail/\w+, got PermissionError: see to its"):
        policy.sealed(MAIL, "data", LARGE, "2")
    error = unreadable(policy, kept, f"job 7 of queue mail to be the object {path}, .*: PermissionError$")
    assert error.may_pass
    assert pickle.loads(pickle.dumps(error)).may_pass


@pytest.mark.parametrize("step", ["pipe_file", "mv"])
def test_what_cannot_be_stored_leaves_nothing_behind_unless_another_try_stores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr("spark_bull.core.payloads.policy.PAUSES_S", (0, 0))
    policy, system = PayloadPolicy((), str(tmp_path), 100), type(fsspec.filesystem("file"))
    done, fails = getattr(system, step), iter([True] * 3 + [True, True, False])

    def full(self: object, *args: object, **kwargs: object) -> object:
        if next(fails):
            if step == "pipe_file":
                Path(str(args[0])).write_bytes(b"part")
            raise OSError(28, "No space left on device")
        return done(self, *args, **kwargs)

    monkeypatch.setattr(system, step, full)
    with pytest.raises(PayloadNotStored, match=r"got OSError: see to its"):
        policy.sealed(MAIL, "data", LARGE, "1")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    kept = policy.sealed(MAIL, "data", LARGE, "1")
    assert policy.opened(MAIL, "data", "7", kept) == LARGE
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def test_folders_of_a_file_system_that_is_not_local_are_made_but_not_its_root(tmp_path: Path) -> None:
    policy = PayloadPolicy((), f"simplecache::file://{tmp_path / 'jobs'}", 100)
    with pytest.raises(PayloadNotStored, match="got FileNotFoundError"):
        policy.sealed(MAIL, "data", LARGE, "1")
    (tmp_path / "jobs").mkdir()
    assert policy.opened(MAIL, "data", "7", policy.sealed(MAIL, "data", LARGE, "1")) == LARGE


class OfProcess(LocalFileSystem):
    """As file systems with connections, it does not work in a fork of the process that has opened it."""

    protocol = "of-process"

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._process = os.getpid()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("of-process://")))

    def cat_file(self, *args: Any, **given: Any) -> Any:
        assert self._process == os.getpid()
        return super().cat_file(*args, **given)


def test_a_fork_opens_the_file_system_anew(tmp_path: Path) -> None:
    code = f"from tests.unit.core.payloads.test_policy import open_in_a_fork; open_in_a_fork({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[4], check=True)


def open_in_a_fork(folder: str) -> None:
    """Runs in a separate program, since pytest must not be forked."""
    fsspec.register_implementation("of-process", OfProcess, clobber=True)
    policy = PayloadPolicy((), f"of-process://{folder}", 100)
    kept = policy.sealed(MAIL, "data", LARGE, "1")
    fork = get_context("fork").Process(target=policy.opened, args=(MAIL, "data", "7", kept))
    fork.start()
    fork.join()
    assert fork.exitcode == 0


def test_a_payload_that_looks_like_a_kept_one_is_refused_unless_it_is_sealed(key: KeySource, root: str) -> None:
    for text in ('{"$sealed":1}', '{"$stored":1}'):
        with pytest.raises(OptionError, match=r"expected `data` without a member `\$sealed` or `\$stored`"):
            PayloadPolicy((), root, 0).sealed(MAIL, "data", text, "1")
        policy = PayloadPolicy((key,), root, 0)
        assert policy.opened(MAIL, "data", "7", policy.sealed(MAIL, "data", text, "1")) == text


def test_options_are_checked_together_and_show_no_secrets(key: KeySource) -> None:
    given = {
        "encryptWith": f"a=file:{key.where}",
        "offloadTo": "memory://user:pw@x",
        "offloadAbove": "64kb",
        "queue": "q",
    }
    options = parse_options(given, WriteOptions)
    policy = policy_of(options)
    assert policy == PayloadPolicy((key,), "memory://user:pw@x", 64_000)
    assert "pw" not in repr(options) + repr(policy)
    policy.sealed(MAIL, "data", "{}", "1")
    assert b"k" * 32 not in pickle.dumps(policy)
    with pytest.raises(OptionError, match="expected `offloadTo` with `offloadAbove`, got none"):
        parse_options({"offloadAbove": "1"}, WriteOptions)
    with pytest.raises(
        OptionError, match="expected `offloadAbove` to be a number of bytes, such as 65536, 64kb or 1mb"
    ):
        parse_options({"offloadAbove": "64 apples"}, WriteOptions)
    with pytest.raises(OptionError, match="option `offloadAbove` is for writes, not for reads"):
        parse_options({"offloadAbove": "1"}, ReadOptions)
    with pytest.raises(OptionError, match="a path or URL that fsspec knows, got one of 'ftpp'") as found:
        policy_of(parse_options({"offloadTo": "ftpp://user:pw@x"}, ReadOptions))
    assert "pw" not in str(found.value)


@pytest.mark.parametrize(
    ("package", "module", "given", "extra"),
    [
        ("cryptography", "aes_gcm", {"encryptWith": "a=env:SPARK_BULL_TEST_KEY"}, "encrypt"),
        ("fsspec", "objects", {"offloadTo": "/tmp/x"}, "offload"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    package: str, module: str, given: dict[str, str], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_BULL_TEST_KEY", "00" * 32)
    monkeypatch.delitem(sys.modules, f"spark_bull.core.payloads.{module}", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    why = f"expected the package {package} for `{next(iter(given))}`, found none .*: pip install 'spark-bull.{extra}.'"
    with pytest.raises(OptionError, match=why):
        policy_of(parse_options(given, ReadOptions))
