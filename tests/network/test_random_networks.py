"""Random networks: every layer is within its bound of float64, and results are as near to it as torch's own."""

import pytest

pytest.importorskip("torch")
from benches.fuzz_models import trial
from tests.fuzzing.networks import drawn


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", [3, 8, 11])
def test_a_random_network_is_right_layer_by_layer_and_as_a_whole(seed):
    row = trial(seed)
    assert "failure" not in row and row["steps"] > 1 and row["error"] <= 1


def test_a_seed_draws_the_same_network_again():
    assert drawn(5)[0].plan == drawn(5)[0].plan
