from tools.readme_options import README, with_tables


def test_the_tables_of_the_readme_are_those_of_the_code() -> None:
    text = README.read_text(encoding="utf-8")
    assert with_tables(text) == text, "run: python tools/readme_options.py"
    assert text.count("| `chunkSize` |") == 4
