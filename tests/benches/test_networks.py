"""The networks of the benches come in from torch and from ONNX without a step of their own library."""

import pytest

from rollergen import compile

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from benches.names import network_names  # noqa: E402
from benches.networks import NETWORKS, network  # noqa: E402


def test_the_names_that_are_read_without_torch_are_those_of_all_networks():
    assert network_names() == tuple(NETWORKS)


@pytest.mark.parametrize("way", ["torch", "onnx"])
@pytest.mark.parametrize("name", ["DQN", "LSTM cells"])
@pytest.mark.every(3)
def test_a_network_is_kernels_alone_for_a_device_that_is_not_there(name, way):
    from benches.bench_networks import imported  # by which this process has one thread, until the test ends

    module, inputs = network(name, small=True)
    model = compile(imported(module, inputs, way, name)[0], None, "v100", profile=False)
    assert all(one.kernel is not None for one in model.layers)
    assert model.predicted_time > 0
    assert torch.backends.mha.get_fastpath_enabled()  # as it was before the export
