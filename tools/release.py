"""Makes a release, up to the upload; docs/develop/release.md says what it makes, and what a person does.

    make release VERSION=0.2.0             in a clean checkout of main
    python tools/release.py 0.2.0 --dry-run

All of it happens in a copy of the repository, and comes back to the checkout only when each step has succeeded; a dry
run ends before that.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
VERSION_FILE: Final = Path("spark_bull/core/version.py")
CHANGELOG: Final = Path("CHANGELOG.md")
UNRELEASED: Final = "## [Unreleased]"
NUMBER: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:rc(\d+))?")
#: A sentence of the changelog about the next version, which is not true of a release.
PLANNED: Final = re.compile(r"\n\nTo be released as [^\n]*")
CONSTRAINTS: Final = "constraints.txt"
VENDORED: Final = "spark_bull/ops/web/page/static/vendor/README.md"
#: What users install; `demo` adds notebooks and charts.
EXTRAS: Final = "local,spark,encrypt,offload,otel,web"
#: The tests of what is in the wheel, and of fresh environments that have it; and the variable that names it.
OF_WHEEL: Final = (
    "tests/unit/test_packaging.py",
    "tests/integration/test_extras.py",
    "tests/spark/test_quickstart.py",
)
WHEEL: Final = "SPARK_BULL_TEST_WHEEL"


class ReleaseError(Exception):
    """The release can't be made; the message says what to do."""


def number_of(version: str) -> tuple[int, ...]:
    """A version as numbers that can be compared; a candidate (`1.0.0rc1`) comes before its release."""
    found = NUMBER.fullmatch(version)
    if found is None:
        raise ReleaseError(f"expected a version such as 0.2.0 or 1.0.0rc1, got: {version}")
    *numbers, candidate = found.groups()
    return (*map(int, numbers), int(candidate) if candidate else sys.maxsize)


def is_candidate(version: str) -> bool:
    return number_of(version)[-1] != sys.maxsize


def check_version(version: str, tags: Sequence[str]) -> None:
    """Raises ReleaseError unless `version` is newer than all versions that have a tag."""
    number = number_of(version)
    releases = [tag.removeprefix("v") for tag in tags if NUMBER.fullmatch(tag.removeprefix("v"))]
    newest = max(releases, key=number_of, default=None)
    if newest is not None and number <= number_of(newest):
        raise ReleaseError(f"expected a version after {newest}, which has a tag, got: {version}")


def released(changelog: str, version: str, day: date) -> str:
    """The changelog in which the unreleased changes are the changes of `version`.

    A candidate has them, too, and leaves them unreleased for its release.
    """
    text = PLANNED.sub("", changelog, count=1)
    notes = notes_of(text, UNRELEASED)
    if not notes:
        raise ReleaseError(f"expected changes below `{UNRELEASED}` in {CHANGELOG}, found none")
    if is_candidate(version):
        return text.replace(UNRELEASED, f"{UNRELEASED}\n\n{notes}\n\n## [{version}] - {day.isoformat()}", 1)
    return text.replace(UNRELEASED, f"{UNRELEASED}\n\n## [{version}] - {day.isoformat()}", 1)


def notes_of(changelog: str, heading: str) -> str:
    """The text below a heading of the changelog, up to the next version."""
    _, _, below = changelog.partition(f"{heading}")
    if not below:
        raise ReleaseError(f"expected the heading `{heading}` in {CHANGELOG}, found none")
    return re.split(r"^## ", below.partition("\n")[2], maxsplit=1, flags=re.MULTILINE)[0].strip()


def run(*command: str, cwd: Path, **variables: str) -> str:
    """Runs a command and returns what it prints. Raises ReleaseError with its output if it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        # The rights of files are a part of the packages.
        umask=0o022,
    )
    if done.returncode:
        raise ReleaseError(f"`{' '.join(command)}` failed:\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout.strip()


def build(source: Path, target: Path) -> None:
    """Builds the sdist and the wheel of a checkout. Each build of a commit has the same bytes."""
    epoch = run("git", "log", "-1", "--format=%ct", cwd=source)
    command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target))
    run(*command, cwd=source, SOURCE_DATE_EPOCH=epoch)
    (sdist,) = target.glob("*.tar.gz")
    repack(sdist, int(epoch))


def repack(sdist: Path, epoch: int) -> None:
    """Replaces the times, owners and order of the files in an sdist, which setuptools takes from the machine."""
    packed = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in sorted(old, key=lambda one: one.name):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.mode, plain.size, plain.mtime = member.type, member.mode, member.size, epoch
            new.addfile(plain, old.extractfile(member) if member.isfile() else None)
    sdist.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch))


def digests(folder: Path) -> str:
    """The SHA-256 of each file of a folder, as sha256sum writes them."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def prepare(copy: Path, version: str, day: date, *, tried: bool) -> Path:
    """Commits and tags the release in a copy of the repository; returns the folder with its files."""
    (copy / VERSION_FILE).write_text(
        re.sub(r'"[^"]+"$', f'"{version}"', (copy / VERSION_FILE).read_text(), count=1, flags=re.MULTILINE)
    )
    changelog = released((copy / CHANGELOG).read_text(), version, day)
    (copy / CHANGELOG).write_text(changelog)
    run("git", "commit", "--quiet", "--all", "--allow-empty", "--message", f"Release {version}", cwd=copy)
    run("git", "tag", "--annotate", f"v{version}", "--message", f"spark_bull {version}", cwd=copy)
    files = copy / "dist"
    build(copy, files)
    check_repeatable(copy, files)
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, sorted(files.iterdir())), cwd=copy)
    (wheel,) = files.glob("*.whl")
    if tried:
        # CI: a missing service or package index is an error.
        run(sys.executable, "-m", "pytest", "-q", *OF_WHEEL, cwd=copy, CI="true", **{WHEEL: str(wheel)})
        list_components(files, version, copy)
    run(sys.executable, "tools/build_zip.py", str(files / f"spark_bull-{version}.zip"), cwd=copy)
    build_docs(copy, version, files)
    shutil.copy(copy / CONSTRAINTS, files / f"constraints-{version}.txt")
    (files / f"notes-{version}.md").write_text(notes_of(changelog, f"## [{version}]") + "\n")
    (files / "SHA256SUMS").write_text(digests(files))
    return files


def check_repeatable(copy: Path, files: Path) -> None:
    """Raises ReleaseError unless another build of the commit, elsewhere, has the same bytes."""
    with TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        run("git", "clone", "--quiet", str(copy), str(other), cwd=copy)
        build(other, other / "dist")
        if digests(other / "dist") != digests(files):
            raise ReleaseError(f"expected equal builds, got:\n{digests(files)}and:\n{digests(other / 'dist')}")


def list_components(files: Path, version: str, copy: Path) -> None:
    """Writes what an installation of the wheel with all extras brings: a software bill of materials of CycloneDX."""
    with TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=files)
        python = str(Path(folder) / "bin" / "python")
        install = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
        # By its name, as the list would have the path of a file; then what it needs.
        run(*install, "--no-deps", "--no-index", "--find-links", str(files), f"spark-bull=={version}", cwd=files)
        run(*install, "--constraint", str(copy / CONSTRAINTS), f"spark-bull[{EXTRAS}]=={version}", cwd=files)
        command = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible")
        listed = json.loads(run(*command, python, cwd=files))
    listed["components"] += libraries_of_page((copy / VENDORED).read_text())
    (files / f"spark_bull-{version}.cdx.json").write_text(json.dumps(listed, indent=2) + "\n")


def libraries_of_page(table: str) -> list[dict[str, Any]]:
    """The libraries from npm that are in the wheel, as components of CycloneDX; `table` is the text of VENDORED."""
    rows = re.findall(r"^\| `.+` \| (\S+) \| (\S+) \| (\S+), `", table, re.MULTILINE)
    return [
        {
            "bom-ref": f"pkg:npm/{name}@{version}",
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:npm/{name}@{version}",
            "licenses": [{"license": {"id": licence}}],
        }
        for name, version, licence in rows
    ]


def build_docs(copy: Path, version: str, files: Path) -> None:
    """Builds the documentation of the version, as a zip file."""
    with TemporaryDirectory() as site:
        command = (sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", site)
        run(*command, cwd=copy, NO_MKDOCS_2_WARNING="1", DOCS_NAME=f"spark_bull {version}")
        shutil.make_archive(str(files / f"spark_bull-docs-{version}"), "zip", site)


def release(version: str, day: date, *, dry: bool, tried: bool) -> dict[str, int]:
    """Makes the release, or in a dry run a copy of it that is deleted; returns its files, and their bytes."""
    check_version(version, run("git", "tag", "--list", cwd=ROOT).split())
    if not dry and (branch := run("git", "branch", "--show-current", cwd=ROOT)) != "main":
        raise ReleaseError(f"expected the branch main, got: {branch or 'none'}; run: git switch main")
    if not dry and run("git", "status", "--porcelain", cwd=ROOT):
        raise ReleaseError("expected a checkout without changes: commit them, or put them aside")
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "spark_bull"
        run("git", "clone", "--quiet", str(ROOT), str(copy), cwd=Path(folder))
        for name, nobody in {"user.name": "dry run", "user.email": "dry-run@localhost"}.items():
            run("git", "config", name, nobody if dry else run("git", "config", name, cwd=ROOT), cwd=copy)
        files = prepare(copy, version, day, tried=tried)
        sizes = {path.name: path.stat().st_size for path in sorted(files.iterdir())}
        if not dry:
            run("git", "pull", "--quiet", "--ff-only", "--tags", str(copy), "HEAD", cwd=ROOT)
            shutil.copytree(files, ROOT / "dist", dirs_exist_ok=True)
        return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a release, up to the upload.")
    parser.add_argument("version", help="such as 0.2.0 or 1.0.0rc1")
    parser.add_argument("--dry-run", action="store_true", help="make it in a copy of the repository that is deleted")
    parser.add_argument("--untried", action="store_true", help="leave out the installations into fresh environments")
    arguments = parser.parse_args()
    if arguments.untried and not arguments.dry_run:
        parser.error("expected --untried only with --dry-run: a release is tried")
    try:
        sizes = release(arguments.version, date.today(), dry=arguments.dry_run, tried=not arguments.untried)
    except ReleaseError as error:
        sys.exit(str(error))
    print(*(f"dist/{name}: {size:,} bytes" for name, size in sizes.items()), sep="\n")
    if not arguments.dry_run:
        packages = " ".join(f"dist/{name}" for name in sizes if name.endswith((".whl", ".tar.gz")))
        print(f"To publish it: git push --follow-tags && {sys.executable} -m twine upload {packages}")


if __name__ == "__main__":
    main()
