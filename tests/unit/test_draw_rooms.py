"""The picture of the packages in docs/develop."""

from __future__ import annotations

from tools.draw_rooms import GROUND, PICTURE, imports_of_packages, levels_of, picture, without_detours


def test_the_picture_in_the_docs_is_that_of_the_code() -> None:
    assert PICTURE.read_text() == picture(), "run `make docs`"


def test_each_package_is_in_the_picture_and_stands_above_those_that_it_imports() -> None:
    imports = imports_of_packages()
    shown = PICTURE.read_text()
    assert all(f">{name}<" in shown for name in imports)
    level_of = {name: level for level, names in enumerate(levels_of(imports)) for name in names}
    assert level_of[GROUND] == 0
    assert all(level_of[other] < level_of[name] for name, others in imports.items() for other in others)


def test_an_arrow_that_follows_from_others_is_left_out() -> None:
    assert without_detours({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}
