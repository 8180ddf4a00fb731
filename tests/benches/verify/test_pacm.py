"""PaCM learns an order, adapts by momentum, and comes back from a file that nothing is executed of."""

import json

import numpy as np
import pytest

from benches.verify import metrics
from rollergen.features import names
from rollergen.features.dataflow import BLOCKS, COLUMNS, COMPUTE, sequences
from rollergen.verify.dataset import from_records
from rollergen.verify.model_text import VerifierError
from tests.verify.records import recorded

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.numpy")

from benches.verify import pacm  # noqa: E402


@pytest.fixture(scope="module")
def data():
    return from_records([recorded()])


@pytest.fixture(scope="module")
def fitted(data):
    ranker = pacm.Attentive(width=32, epochs=40)
    ranker.fit(data, 0)
    return ranker


def right(data, scores):
    return np.mean([metrics.pairwise_accuracy(data.ms[rows], scores[rows]) for rows in data.operators()])


def test_blocks_are_those_that_a_program_has(data):
    blocks, mask = sequences(data.x)
    assert blocks.shape == (len(data), len(BLOCKS), COLUMNS) and mask[:, COMPUTE].all()
    staged = data.x[:, names().index("G.in0 copied to block")] > 0
    assert (mask[:, 1] == staged).all() and (mask[:, 2] == staged).all() and staged.any()
    assert not blocks[~mask].any()
    present = blocks[mask]
    assert (present[:, 1:4].sum(axis=1) == 1).all() and (present[:, 4:7].sum(axis=1) == 1).all()
    only_one = data.of(np.array([rows[0] for rows in data.operators()[5:]]))
    assert not sequences(only_one.x)[1][:, [3, 4, 6]].any()  # a sum has one operand


def test_it_learns_an_order_that_it_did_not_begin_with(data, fitted):
    untrained = pacm.Attentive(width=32, epochs=0)
    untrained.fit(data, 0)
    assert right(data, fitted.scores(data)) > max(0.8, right(data, untrained.scores(data)) + 0.1)


def test_the_same_seed_gives_the_same_scores_and_torchs_own_state_stays(data):
    state = torch.random.get_rng_state()
    rankers = [pacm.Attentive(width=16, epochs=1) for _ in range(2)]
    for ranker in rankers:
        ranker.fit(data, 3)
    assert (rankers[0].scores(data) == rankers[1].scores(data)).all()
    assert (torch.random.get_rng_state() == state).all()


def test_masked_blocks_do_not_count(data, fitted):
    x, blocks, mask = fitted._inputs(data.x[:20])
    noise = torch.where(mask.unsqueeze(2), 0.0, 5.0)
    fitted.module.eval()
    with torch.no_grad():
        np.testing.assert_allclose(fitted.module(x, blocks, mask), fitted.module(x, blocks + noise, mask), atol=1e-4)


def test_an_update_moves_the_target_by_a_hundredth(data):
    ranker = pacm.Attentive(width=16, epochs=2)
    ranker.fit(data, 0)
    before = {name: value.clone() for name, value in ranker.target.items()}
    ranker.update(data.of(np.arange(40)), 1, epochs=2)
    after = dict(ranker.module.named_parameters())
    assert any((before[name] != after[name]).any() for name in before)
    for name, value in ranker.target.items():
        expected = pacm.MOMENTUM * before[name] + (1 - pacm.MOMENTUM) * after[name].detach()
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-7)


def test_a_kept_ranker_scores_as_before(data, fitted, tmp_path):
    path = tmp_path / "pacm.safetensors"
    pacm.save(fitted, path)
    assert (pacm.load(path).scores(data) == fitted.scores(data)).all()


def test_damaged_files_are_refused_by_name(fitted, tmp_path):
    path = tmp_path / "pacm.safetensors"
    pacm.save(fitted, path)
    whole = path.read_bytes()
    tensors = safetensors.load_file(path)
    about = {"about": json.dumps(pacm._about(32))}
    variance = next(name for name in tensors if name.endswith("running_var"))
    for change, message in (
        (lambda: path.write_bytes(whole[:-100]), "cannot be read"),
        (lambda: path.write_bytes(b"\x80\x04pickle"), "cannot be read"),
        (lambda: safetensors.save_file(tensors, path), "train it anew"),
        (lambda: safetensors.save_file(tensors, path, {"about": json.dumps(pacm._about(1 << 20))}), "train it anew"),
        (lambda: safetensors.save_file({**tensors, "scale": tensors["scale"][:-1]}, path, about), "scale is not"),
        (lambda: safetensors.save_file({**tensors, "scale": tensors["scale"] * 0}, path, about), "positive"),
        (lambda: safetensors.save_file({**tensors, "module.more": tensors["scale"]}, path, about), "no module.more"),
        (lambda: safetensors.save_file({**tensors, variance: -tensors[variance]}, path, about), "variance"),
        (lambda: safetensors.save_file(tensors, path, {"about": "[" * 99999}), "cannot be read"),
        *(
            (lambda dtype=dtype, size=size: path.write_bytes(_of_dtype(dtype, size)), "cannot be read|train it anew")
            for dtype, size in (("BF16", 2), ("F8_E4M3", 1), ("XX", 4))
        ),
    ):
        change()
        with pytest.raises(VerifierError, match=message):
            pacm.load(path)


def _of_dtype(name, size):
    """A file whose one tensor has a dtype that numpy may not have."""
    header = json.dumps({"scale": {"dtype": name, "shape": [2], "data_offsets": [0, 2 * size]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(2 * size)
