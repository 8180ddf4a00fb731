"""Models of torch, compiled: their results are torch's, nested and of the kind that went in."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, CheckFailedError, ConstructionError, DtypeError, ShapeError

torch = pytest.importorskip("torch")
nn = torch.nn


def seeded(make):
    torch.manual_seed(0)
    return make().eval()


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second, self.head, self.pool = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 5), nn.MaxPool2d(2)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        x = self.pool(torch.relu(self.norm(self.first(x))))
        return self.head((torch.relu(self.second(x)) + x).mean((2, 3)))


class Block(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads, self.before, self.after = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, s, width = x.shape
        parts = self.qkv(self.before(x)).view(n, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, s, width))
        return x + self.down(nn.functional.gelu(self.up(self.after(x))))


class Sorted(nn.Module):
    """A sort has no counterpart in rg.ops."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.second(torch.sort(torch.relu(self.first(x)))[0])


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 8)

    def forward(self, a, b):
        y = self.layer(a["x"]) * b
        return {"y": y, "parts": (y.transpose(0, 1), a["x"])}


class Cell(nn.Module):
    """Torch's own decomposition makes products and gates of an LSTM's cell."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(6, 8)

    def forward(self, x):
        return sum(self.cell(x, self.cell(x)))


def compiled(model, *inputs, device="cpu"):
    return rg.compile(model, inputs, device, profile=False)


MODELS = {
    "residual network": (Residual, (1, 3, 8, 8)),
    "transformer block": (Block, (1, 8, 16)),
    "perceptron": (lambda: nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 4), nn.Softmax(-1)), (3, 6)),
    "recurrent cell": (Cell, (3, 6)),
    "host step": (Sorted, (3, 6)),
}


@cache
def of_list(name):
    """(a model, the compiled one, the shape of its input), shared by tests that only call it."""
    make, shape = MODELS[name]
    model = seeded(make)
    return model, compiled(model, torch.randn(shape)), shape


@cache
def linear():
    """A compiled layer, shared by tests that only call it."""
    return compiled(nn.Linear(6, 8).eval(), torch.zeros(3, 6))


@pytest.mark.parametrize("name", MODELS)
def test_a_models_result_is_torchs(name):
    model, ours, shape = of_list(name)
    for _ in range(2):
        x = torch.randn(shape)
        torch.testing.assert_close(ours(x), model(x).detach(), rtol=1e-5, atol=1e-5)


def test_results_are_nested_as_the_models_and_of_the_kind_that_went_in():
    model, a, b = seeded(Several), {"x": torch.randn(3, 6)}, torch.randn(8)
    ours, wanted = compiled(model, a, b), model(a, b)
    torch.testing.assert_close(ours(a, b), torch.utils._pytree.tree_map(torch.Tensor.detach, wanted))
    made = ours({"x": a["x"].numpy()}, b.numpy())
    assert type(made["parts"][0]) is np.ndarray
    np.testing.assert_allclose(made["y"], wanted["y"].detach().numpy(), rtol=1e-5, atol=1e-6)


def test_results_stay_when_the_model_is_called_again():
    model, x = seeded(Sorted), torch.randn(3, 6)
    ours = compiled(model, x)
    kept = (first := ours(x)).clone()
    ours(torch.randn(3, 6))
    assert torch.equal(first, kept)


def test_what_has_no_counterpart_runs_in_torch_and_says_so():
    layers = compiled(seeded(Sorted), torch.randn(3, 6), device="v100").layers
    host = [one for one in layers if one.kernel is None]
    assert [(one.operators, one.reason, one.predicted_s) for one in host] == [("sort", "no counterpart", None)]
    assert len(layers) == 3


def test_what_torch_can_decompose_needs_no_step_of_torchs():
    layers = compiled(seeded(Cell), torch.randn(3, 6), device="v100").layers
    assert all(one.kernel is not None for one in layers)


class Steps(nn.Module):
    """A recurrence of both directions, batch first, and parts of another axis than the first."""

    def __init__(self, kind):
        super().__init__()
        self.layer = getattr(nn, kind)(6, 8, batch_first=True, bidirectional=kind == "GRU")

    def forward(self, x):
        y, last = self.layer(x)
        return y, last, sum(x.unbind(1)) + sum(x.unbind(-2))


@pytest.mark.filterwarnings("ignore:The tensor attributes")
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_steps_of_a_recurrence_share_their_kernels(kind):
    model, counts = seeded(lambda: Steps(kind)), []
    for steps in (9, 12):
        x = torch.randn(2, steps, 6)
        ours = compiled(model, x)
        torch.testing.assert_close(ours(x), torch.utils._pytree.tree_map(torch.Tensor.detach, model(x)))
        assert all(one.kernel is not None for one in ours.layers)
        counts.append(len(ours.kernels))
    assert counts[0] == counts[1]


def test_a_batch_norm_is_written_into_the_convolution_before_it():
    steps = compiled(seeded(Residual), torch.randn(1, 3, 8, 8), device="v100").steps
    assert [step.operators for step in steps] == [
        "conv2d, relu", "max_pool2d", "conv2d, relu, add", "mean", "linear",
    ]  # fmt: skip


class Upwards(nn.Module):
    """Norms after transposed convolutions, one of them in groups."""

    def __init__(self):
        super().__init__()
        self.wide, self.norm = nn.ConvTranspose2d(4, 6, 3, 2, groups=2, bias=False), nn.BatchNorm2d(6)
        self.last, self.other = nn.ConvTranspose1d(6, 4, 3), nn.BatchNorm1d(4)
        for norm in (self.norm, self.other):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return torch.relu(self.other(self.last(torch.relu(self.norm(self.wide(x))).flatten(2))))


def test_a_batch_norm_is_written_into_the_transposed_convolution_before_it():
    net, x = seeded(Upwards), torch.randn(1, 4, 5, 5)
    model = compiled(net, x)
    assert [step.operators for step in model.steps] == ["conv_transpose2d, relu, view", "conv_transpose1d, relu"]
    torch.testing.assert_close(model(x), net(x).detach(), rtol=1e-5, atol=1e-5)


def test_a_step_without_a_kernel_is_left_to_torch_node_by_node(monkeypatch):
    def refused(expression, *_, **__):
        raise ConstructionError(f"{expression.name}: nothing fits")

    monkeypatch.setattr("rollergen.network.building.build", refused)
    net, x = seeded(Residual), torch.randn(1, 3, 8, 8)
    model = compiled(net, x)
    assert "conv2d" in [one.operators for one in model.layers]
    assert all(one.kernel is None and "nothing fits" in one.reason for one in model.layers)
    torch.testing.assert_close(model(x), net(x).detach())


def test_layers_that_are_alike_share_a_kernel_and_keep_their_own_weights():
    model = seeded(lambda: nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3))))
    x = torch.randn(4, 8)
    ours = compiled(model, x)
    assert (len(ours.steps), len(ours.kernels)) == (3, 1)
    torch.testing.assert_close(ours(x), model(x).detach())


def test_a_model_is_predicted_layer_by_layer_for_a_device_that_is_not_there():
    ours = compiled(seeded(Block), torch.randn(1, 8, 16), device="v100")
    assert sum(one.predicted_s for one in ours.layers) == pytest.approx(ours.predicted_time)
    assert sum(one.share for one in ours.layers) == pytest.approx(1)
    assert all(kernel.source and len(kernel.candidates) <= 2 for kernel in ours.kernels)
    text = ours.explain()
    assert all(one.source in text and one.limiter in text for one in ours.layers)


@pytest.mark.parametrize("device", ["cpu", "v100"])
def test_of_results_without_elements_no_layer_takes_time(device):
    ours = compiled(nn.Linear(16, 4).eval(), torch.zeros(0, 16), device=device)
    (layer,) = ours.layers
    assert (layer.limiter, layer.predicted_s, layer.share) == ("nothing launched", 0, 0)
    assert "nothing launched" in ours.explain() and ours.facts()["layers"][0]["flops"] == 0


def test_a_brief_explanation_has_the_layers_that_take_longest():
    net = nn.Sequential(*(nn.Sequential(nn.Linear(8 * n, 8 * n + 8), nn.LayerNorm(8 * n + 8)) for n in range(1, 9))).eval()
    made = rg.compile(net, (torch.zeros(2, 8),), "v100", cache=False)
    whole, brief = made.explain().splitlines(), made.explain(brief=True).splitlines()
    shares = [float(line.split("%")[0]) for line in brief[4:14]]
    assert len(made.layers) > 10 and shares == sorted(shares, reverse=True) and set(brief[:14]) <= set(whole)
    assert brief[14:] == [f"{len(made.layers) - 10} steps more: explain() lists them"]


def test_weights_that_change_after_the_first_call_change_no_result():
    model, x = seeded(lambda: nn.Linear(6, 8)), torch.randn(3, 6)
    ours = compiled(model, x)
    before = ours(x)
    with torch.no_grad():
        model.weight.zero_(), model.bias.zero_()
    assert torch.equal(ours(x), before)


def test_a_benchmark_times_every_step():
    model, x = seeded(Sorted), torch.randn(3, 6)
    ours = compiled(model, x)
    assert ours.measured_time is None
    timing = ours.benchmark(x, rounds=2)
    assert [one.measured_s for one in ours.layers] == list(timing.steps_s)
    assert ours.measured_time == timing.wall_s > 0 and timing.beside_s > 0


@pytest.mark.parametrize("name", MODELS)
def test_every_layer_is_within_its_bound_of_float64(name):
    _, ours, shape = of_list(name)
    checks = ours.check(torch.randn(shape))
    assert [one.source for one in checks] == [one.source for one in ours.layers if one.kernel is not None]
    assert all(one.compared and not one.problem for one in checks)


def test_the_first_layer_beyond_its_bound_is_named():
    model, x = seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))), torch.randn(3, 6)
    ours = compiled(model, x)
    ours(x)
    with torch.no_grad():
        model[2].bias += 1e-4  # the kernel has read it, the definition has not
    with pytest.raises(
        CheckFailedError, match=r"linear_1 \(linear\): \d+ of \d+ compared elements of linear_1 are wrong"
    ):
        ours.check(x)


def test_threads_may_compile_at_the_same_time():
    nets, x = [nn.Sequential(nn.Linear(6, 8 + n), nn.ReLU()).eval() for n in range(4)], torch.randn(3, 6)
    with ThreadPoolExecutor(4) as pool:
        for net, ours in zip(nets, pool.map(lambda net: compiled(net, x), nets), strict=True):
            torch.testing.assert_close(ours(x), net(x).detach())


class Scaled(nn.Module):
    def forward(self, x, times, mode="plain", offset=None):
        return {"of": mode, "times": times, "y": torch.relu(x) * times if offset is None else x + offset}


def test_arguments_and_results_that_are_no_tensors_are_those_of_the_example():
    net, x = Scaled().eval(), torch.randn(3, 6)
    ours, want = compiled(net, x, 2, "y"), net(x, 2, "y")
    got = ours(x, 2, "y")
    assert (got["of"], got["times"]) == ("y", 2)
    torch.testing.assert_close(got["y"], want["y"])
    for others, said in (
        ((3, "y"), "times of Scaled is 3; expected 2"), ((2, "x"), "mode of Scaled is 'x'; expected 'y'"),
        ((2.0, "y"), "times of Scaled is 2.0; expected 2"), ((True, "y"), "times of Scaled is True; expected 2"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=said):
            ours(x, *others)


class Factor(nn.Module):
    def forward(self, x, times):
        return torch.relu(x) * times


@pytest.mark.parametrize(("example", "other"), [("nan", "0.0"), ("0.0", "-0.0")])
def test_nan_is_itself_as_an_argument_and_zeros_have_signs(example, other):
    x = torch.ones(3)
    ours = compiled(Factor().eval(), x, float(example))
    torch.testing.assert_close(ours(x, float(example)), x * float(example), equal_nan=True)
    with pytest.raises(ArgumentError, match=rf"times of Factor is {other}; expected {example}"):
        ours(x, float(other))


def test_a_tensor_in_place_of_none_is_refused():
    ours = compiled(Scaled().eval(), torch.ones(3), 2, "y", None)
    with pytest.raises(ArgumentError, match=r"offset of Scaled is a torch.Tensor .* expected None"):
        ours(torch.ones(3), 2, "y", torch.ones(3))


@pytest.mark.parametrize(
    ("call", "error", "parts"),
    [
        (lambda m: m(torch.zeros(3, 7)), ShapeError, ("input", "(3, 7)", "expected (3, 6)", "rg.compile with")),
        (lambda m: m(torch.zeros(3, 6, dtype=torch.float64)), DtypeError, ("float64", "expected float32")),
        (lambda m: m(np.zeros((3, 6), ">f4")), DtypeError, ("input has dtype >f4", "expected float32")),
        (lambda m: m(torch.zeros(3, 6), 1), ArgumentError, ("Linear(Tensor, int) is", "expected Linear(input)")),
        (lambda m: m([1.0]), ArgumentError, ("Linear([float]) is not nested as", "expected Linear(input)")),
        (lambda m: m(input=torch.zeros(3, 6)), ArgumentError, ("Linear(input=Tensor) is", "expected Linear(input)")),
        (lambda m: m(), ArgumentError, ("Linear() is not nested as its example inputs; expected Linear(input)",)),
        (lambda m: m.benchmark(torch.zeros(3, 6), rounds=0), ArgumentError, ("rounds is 0", "at least 1")),
    ],
)
def test_arguments_that_do_not_fit_are_named(call, error, parts):
    with pytest.raises(error) as raised:
        call(linear())
    assert all(part in str(raised.value) for part in parts), str(raised.value)


class Branching(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


class Places(nn.Module):
    def forward(self, x):
        return torch.nonzero(x * 2) + 1


class Times(nn.Module):
    def forward(self, x, number: int):
        return x * number


def of_any_number():
    return torch.export.export(Times(), (torch.zeros(3), 3), dynamic_shapes=(None, torch.export.Dim.DYNAMIC))


def of_any_batch():
    shapes = ({0: torch.export.Dim("batch", min=1, max=64)},)
    return torch.export.export(nn.Linear(6, 8).eval(), (torch.zeros(4, 6),), dynamic_shapes=shapes)


def test_what_has_a_shape_that_depends_on_data_runs_in_torch():
    x = torch.tensor([[0.0, 1, 0], [2, 0, 3]])
    made = rg.compile(Places().eval(), (x,), "cpu", profile=False, cache=False)
    for one in (x, torch.ones(2, 3)):
        assert torch.equal(made(one), Places()(one))


@pytest.mark.parametrize(
    ("compiling", "parts"),
    [
        (lambda: rg.compile(nn.Linear(6, 8).eval(), device="v100"), ("example_inputs is None", "expected a tuple")),
        (lambda: rg.compile(nn.Linear(6, 8), (torch.zeros(1, 6),), "v100"), ("training mode", "model.eval()")),
        (lambda: rg.compile(3, (), "v100"), ("model is 3", "torch.nn.Module")),
        (
            lambda: rg.compile(Branching().eval(), (torch.zeros(3),), "v100"),
            ("cannot export Branching: GuardOnDataDependent", "control flow and shapes do not depend on data", "backend='rollergen'"),
        ),
        (lambda: rg.compile(nn.Linear(6, 8).eval(), {"x": torch.zeros(1, 6)}, "v100"), ("export Linear: TypeError", "not dict")),
        (lambda: rg.compile(nn.Linear(6, 8).eval(), None, "v100", dims={"N": (1, 4)}), ("dims beside Linear", "ExportedProgram with dynamic_shapes")),
        (lambda: rg.compile(of_any_batch(), (torch.zeros(8, 6),), "v100"), ("example_inputs beside an exported program",)),
        (lambda: rg.compile(of_any_number(), device="v100"), ("input number of exported program is a number that changes",)),
        (lambda: rg.compile(nn.Linear(6, 8).eval(), (), "v100", options=3), ("options is 3", "rg.BuildOptions")),
        (lambda: rg.compile(nn.Linear(6, 8).eval(), (), "v100", progress=3), ("progress is 3", "a function of (what, done, of)")),
    ],
)
def test_what_cannot_be_compiled_is_named(compiling, parts):
    with pytest.raises(ArgumentError) as raised:
        compiling()
    assert all(part in str(raised.value) for part in parts), str(raised.value)
