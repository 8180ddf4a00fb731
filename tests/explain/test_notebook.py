"""What notebooks show of a kernel can be read: no two words lie on each other."""

import re
from itertools import combinations

import pytest

import rollergen as rg

TEXT = re.compile(r'<text x="([\d.]+)" y="([\d.]+)"( text-anchor="end")?>([^<]*)</text>')
WIDE, HIGH = 7.2, 11  # pixels of a letter of 12px monospace


def boxes(svg):
    for x, y, ends, words in TEXT.findall(svg):
        left = float(x) - (WIDE * len(words) if ends else 0)
        yield words, left, left + WIDE * len(words), float(y) - HIGH, float(y)


EXPRESSIONS = {
    "matmul": rg.ops.matmul(rg.tensor("A", (512, 512)), rg.tensor("B", (512, 512))),
    "softmax": rg.ops.softmax(rg.tensor("x", (4096, 512)), -1),  # as many bytes out of each memory
    "long rows": rg.ops.softmax(rg.tensor("x", (16, 200000)), -1),
}


@pytest.mark.parametrize("device", ["v100", "mi50", "cpu"])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_names_of_a_roofline_lie_apart(name, device):
    shown = rg.build(EXPRESSIONS[name], device, profile=False)._repr_html_()
    *_, roofline = re.findall(r"<svg.*?</svg>", shown)
    assert "roofline" in roofline and "dram" in shown
    for (one, left, right, top, foot), (other, left_2, right_2, top_2, foot_2) in combinations(boxes(roofline), 2):
        assert right <= left_2 or right_2 <= left or foot <= top_2 or foot_2 <= top, (one, other)
