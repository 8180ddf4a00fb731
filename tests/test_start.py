"""The first page is true: its lines run in order, and show what the page says."""

import doctest
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "start.md"


def test_the_first_page_runs_as_it_is_written():
    lines = "\n".join(re.findall(r"```pycon\n(.*?)```", PAGE.read_text(), re.DOTALL))
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    page = doctest.DocTestParser().get_doctest(lines, {}, PAGE.name, str(PAGE), 0)
    told: list[str] = []
    result = doctest.DocTestRunner(optionflags=flags).run(page, out=told.append)
    assert result.attempted > 20 and not result.failed, "".join(told)
