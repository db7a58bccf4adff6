"""Makes a release, up to the upload: version, changelog, commit, tag, wheel and sdist, and the notes of the release.

    make release VERSION=0.2.0             in a clean checkout of main
    python tools/release.py 0.2.0 --dry-run

All of it happens in a copy of the repository, and comes back to the checkout only when each step has succeeded; a dry
run ends before that.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parent.parent
VERSION_FILE: Final = Path("spark_bull/core/version.py")
CHANGELOG: Final = Path("CHANGELOG.md")
UNRELEASED: Final = "## [Unreleased]"
NUMBER: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:rc(\d+))?")
#: A sentence of the changelog about the next version, which is not true of a release.
PLANNED: Final = re.compile(r"\n\nTo be released as [^\n]*")


class ReleaseError(Exception):
    """The release can't be made; the message says what to do."""


def number_of(version: str) -> tuple[int, ...]:
    """A version as numbers that can be compared; a candidate (`1.0.0rc1`) comes before its release."""
    found = NUMBER.fullmatch(version)
    if found is None:
        raise ReleaseError(f"expected a version such as 0.2.0 or 1.0.0rc1, got: {version}")
    *numbers, candidate = found.groups()
    return (*map(int, numbers), int(candidate) if candidate else sys.maxsize)


def check_version(version: str, tags: Sequence[str]) -> None:
    """Raises ReleaseError unless `version` is newer than all versions that have a tag."""
    number = number_of(version)
    releases = [tag.removeprefix("v") for tag in tags if NUMBER.fullmatch(tag.removeprefix("v"))]
    newest = max(releases, key=number_of, default=None)
    if newest is not None and number <= number_of(newest):
        raise ReleaseError(f"expected a version after {newest}, which has a tag, got: {version}")


def released(changelog: str, version: str, day: date) -> str:
    """The changelog in which the unreleased changes are the changes of `version`."""
    if not notes_of(changelog, UNRELEASED):
        raise ReleaseError(f"expected changes below `{UNRELEASED}` in {CHANGELOG}, found none")
    text = PLANNED.sub("", changelog, count=1)
    return text.replace(UNRELEASED, f"{UNRELEASED}\n\n## [{version}] - {day.isoformat()}", 1)


def notes_of(changelog: str, heading: str) -> str:
    """The text below a heading of the changelog, up to the next version."""
    _, _, below = changelog.partition(f"{heading}")
    if not below:
        raise ReleaseError(f"expected the heading `{heading}` in {CHANGELOG}, found none")
    return re.split(r"^## ", below.partition("\n")[2], maxsplit=1, flags=re.MULTILINE)[0].strip()


def run(*command: str, cwd: Path) -> str:
    """Runs a command and returns what it prints. Raises ReleaseError with its output if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ReleaseError(f"`{' '.join(command)}` failed:\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout.strip()


def prepare(copy: Path, version: str, day: date) -> Path:
    """Commits and tags the release in a copy of the repository; returns the folder with its files and notes."""
    (copy / VERSION_FILE).write_text(
        re.sub(r'"[^"]+"$', f'"{version}"', (copy / VERSION_FILE).read_text(), count=1, flags=re.MULTILINE)
    )
    changelog = released((copy / CHANGELOG).read_text(), version, day)
    (copy / CHANGELOG).write_text(changelog)
    run("git", "commit", "--quiet", "--all", "--allow-empty", "--message", f"Release {version}", cwd=copy)
    run("git", "tag", "--annotate", f"v{version}", "--message", f"spark_bull {version}", cwd=copy)
    files = copy / "dist"
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(files), cwd=copy)
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, sorted(files.iterdir())), cwd=copy)
    (files / f"notes-{version}.md").write_text(notes_of(changelog, f"## [{version}]") + "\n")
    return files


def release(version: str, day: date, dry: bool) -> list[str]:
    """Makes the release, or in a dry run a copy of it that is deleted; returns the names of its files."""
    check_version(version, run("git", "tag", "--list", cwd=ROOT).split())
    if not dry and run("git", "status", "--porcelain", cwd=ROOT):
        raise ReleaseError("expected a checkout without changes: commit them, or put them aside")
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "spark_bull"
        run("git", "clone", "--quiet", str(ROOT), str(copy), cwd=Path(folder))
        for name, tried in {"user.name": "dry run", "user.email": "dry-run@localhost"}.items():
            run("git", "config", name, tried if dry else run("git", "config", name, cwd=ROOT), cwd=copy)
        files = prepare(copy, version, day)
        names = sorted(path.name for path in files.iterdir())
        if not dry:
            run("git", "pull", "--quiet", "--ff-only", "--tags", str(copy), "HEAD", cwd=ROOT)
            shutil.copytree(files, ROOT / "dist", dirs_exist_ok=True)
        return names


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a release, up to the upload.")
    parser.add_argument("version", help="such as 0.2.0 or 1.0.0rc1")
    parser.add_argument("--dry-run", action="store_true", help="make it in a copy of the repository that is deleted")
    arguments = parser.parse_args()
    try:
        names = release(arguments.version, date.today(), arguments.dry_run)
    except ReleaseError as error:
        sys.exit(str(error))
    print(*(f"dist/{name}" for name in names), sep="\n")
    if not arguments.dry_run:
        packages = " ".join(f"dist/{name}" for name in names if not name.endswith(".md"))
        print(f"To publish it: git push --follow-tags && {sys.executable} -m twine upload {packages}")


if __name__ == "__main__":
    main()
