"""``torch.compile(module, backend="rollergen")``: several graphs and sizes, and what is left to torch."""

import warnings
from configparser import ConfigParser
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from rollergen.errors import ArgumentError  # noqa: E402
from rollergen.network import torch_backend  # noqa: E402

nn = torch.nn


class Broken(nn.Module):
    """What is computed decides what comes next: two graphs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 5)
        self.norm.running_mean.normal_()

    def forward(self, x):
        y = torch.relu(self.norm(self.first(x))).mean((2, 3))
        if y.abs().sum() > 0:
            y = y * 2
        return self.last(y)


@pytest.fixture
def compiled(monkeypatch):
    """(the module, its compiled one, the models that are made)"""
    torch._dynamo.reset()
    made, compile_model = [], torch_backend.compile_model

    def kept(*arguments, **options):
        made.append(compile_model(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(torch_backend, "compile_model", kept)
    module = Broken().eval()
    yield module, torch.compile(module, backend=torch_backend.backend, options={"profile": False}), made
    torch._dynamo.reset()


def test_graphs_before_and_after_a_break_are_models_of_each_size(compiled):
    module, fast, made = compiled
    with torch.no_grad():
        # The graph after the break has inputs of one size; from the second size on torch has one graph for all.
        for size, models in ((6, 2), (8, 3), (6, 3), (8, 3), (10, 3)):
            x = torch.randn(2, 3, size, size)
            torch.testing.assert_close(fast(x), module(x))
            assert len(made) == models


class Sized(nn.Module):
    """Its size is an argument of the graph, for a shape."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(20, 12)

    def forward(self, x):
        n = x.shape[0]
        return torch.relu(self.layer(x)).reshape(n * 2, 6)


@pytest.fixture
def sized(monkeypatch):
    """(a module, what compiles it, the models that are made)"""
    torch._dynamo.reset()
    made, compile_model = [], torch_backend.compile_model

    def kept(*arguments, **options):
        made.append(compile_model(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(torch_backend, "compile_model", kept)
    monkeypatch.setattr(torch_backend, "_SIZES", {})
    torch.manual_seed(0)
    module = Sized().eval()
    compiling = lambda **named: torch.compile(module, backend=torch_backend.backend, options={"profile": False}, **named)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield module, compiling, made
    torch._dynamo.reset()


def test_sizes_that_torch_leaves_open_are_dims_of_one_model(sized, counts):
    module, compiling, made = sized
    fast = compiling(dynamic=True)
    for size in (4, 7, 64, 13):
        x = torch.randn(size, 20)
        torch.testing.assert_close(fast(x), module(x))
        if size == 4:
            built = counts["constructed"]
    (model,) = made
    assert counts["constructed"] == built
    assert [one["sizes"] for one in model.explain(as_dict=True)["predicted_s"]] == [{"inputs_0_0": n} for n in (4, 7, 13, 64)]


def test_a_second_size_makes_a_model_for_all_within_reach(sized):
    module, compiling, made = sized
    fast = compiling()
    for size, models in ((4, 1), (7, 2), (9, 2), (64, 2)):
        x = torch.randn(size, 20)
        torch.testing.assert_close(fast(x), module(x))
        assert len(made) == models
    with pytest.warns(UserWarning, match=r"\[\(2, 1024\)\] after \[\(2, 64\)\]: .*; expected torch._dynamo.mark_dynamic"):
        fast(torch.randn(65, 20))
    fast(torch.randn(1000, 20)), fast(torch.randn(8, 20))
    assert len(made) == 3


def test_a_bound_that_torch_knows_is_that_of_the_model(sized):
    module, compiling, made = sized
    fast, x = compiling(), torch.randn(5, 20)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=100)
    torch.testing.assert_close(fast(x), module(x))
    fast(torch.randn(100, 20))
    (model,) = made
    assert [(one.low, one.high) for one in model.dims.values()] == [(2, 100)]


def test_weights_that_change_are_packed_anew_for_all_sizes(sized):
    module, compiling, made = sized
    fast = compiling(dynamic=True)
    fast(torch.randn(4, 20))
    module.layer.weight += 1
    for size in (4, 9):
        x = torch.randn(size, 20)
        torch.testing.assert_close(fast(x), module(x))
    assert len(made) == 2


def test_a_graph_that_torch_cannot_export_for_a_range_is_compiled_for_each_size_which_is_told_once(sized, monkeypatch):
    def refused(*_):
        raise ArgumentError("no range")

    monkeypatch.setattr(torch_backend, "exported", refused)
    module, compiling, made = sized
    fast = compiling(dynamic=True)
    fast(torch.randn(3, 20)), fast(torch.randn(3, 20))
    with pytest.warns(UserWarning, match=r"\[\[4, 20\]\] after \[\[3, 20\]\] \(no range\): .*; expected few sizes"):
        fast(torch.randn(4, 20))
    x = torch.randn(6, 20)
    torch.testing.assert_close(fast(x), module(x))
    assert len(made) == 3


def test_a_graph_of_constants_alone_gives_tensors():
    torch._dynamo.reset()
    module = nn.Linear(4, 3).eval()
    fast = torch.compile(lambda: (module.weight * 2, module.bias), backend=torch_backend.backend, options={"profile": False})
    with torch.no_grad():
        doubled, bias = fast()
        torch.testing.assert_close(doubled, module.weight * 2)
        torch.testing.assert_close(bias, module.bias)
    torch._dynamo.reset()


def test_weights_that_change_are_packed_anew(compiled):
    module, fast, made = compiled
    x = torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        fast(x)
        count = len(made)
        module.last.weight += 1
        torch.testing.assert_close(fast(x), module(x))
        assert len(made) == count + 1
        module.last.weight.data = torch.randn_like(module.last.weight)
        torch.testing.assert_close(fast(x), module(x))
    assert len(made) == count + 2


def test_gradients_are_torchs_with_one_warning_for_each_graph(compiled):
    module, fast, made = compiled
    with pytest.warns(UserWarning, match=r"leaves a graph to torch: gradients are wanted; call it under torch\.no_grad"):
        fast(torch.randn(2, 3, 6, 6)).sum().backward()
    assert module.first.weight.grad.abs().sum() > 0 and not made
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fast(torch.randn(2, 3, 6, 6))


def test_modules_before_dynamos_reset_are_not_other_sizes_of_those_after():
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for width in (5, 6):
            torch._dynamo.reset()
            net = torch.nn.Linear(width, 3).eval()
            fast, x = torch.compile(net, backend=torch_backend.backend, options={"profile": False}), torch.ones(2, width)
            torch.testing.assert_close(fast(x), net(x))
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"profil": False}, ("options has 'profil'", "did you mean profile?")), ({"device": "v100"}, ("'device'", "run on the CPU")),
        ({"top_k": "a"}, ("top_k is 'a'; expected None or an integer from 1 to 50",)),
        ({"cache": 1}, ("cache is 1; expected True or False",)), ({"progress": 3}, ("progress is 3; expected a function",)),
        ({"profile": None}, ('profile is None; expected "auto"',)), ({"options": {}}, ("options is {}; expected rg.BuildOptions",)),
    ],
)  # fmt: skip
def test_options_that_no_graph_takes_are_named(options, parts):
    with pytest.raises(Exception) as raised:  # torch's own, about the backend's
        torch.compile(torch.nn.ReLU(), backend=torch_backend.backend, options=options)(torch.zeros(3))
    assert all(part in str(raised.value) for part in parts), str(raised.value)


def test_a_graph_of_which_no_kernel_is_made_is_torchs_with_a_warning():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad(), pytest.warns(UserWarning, match=r"no kernel was made of _transformer_.*set_fastpath_enabled\(False\)"):
        torch.testing.assert_close(torch.compile(layer, backend=torch_backend.backend)(x), layer(x))
    torch._dynamo.reset()


def views_of_an_input(x):
    view, twice = x.view(-1), x * 2
    torch._dynamo.graph_break()
    view.add_(1)
    return x * 3, twice


def views_of_a_result(x):
    twice = x * 2
    view = twice[0]
    torch._dynamo.graph_break()
    view.zero_()
    return twice, x


@pytest.mark.parametrize("function", [views_of_an_input, views_of_a_result])
def test_what_is_written_to_a_view_is_not_lost(function):
    fast = torch.compile(function, backend=torch_backend.backend, options={"profile": False})
    with torch.no_grad(), pytest.warns(UserWarning, match="results share memory with inputs or each other"):
        for got, want in zip(fast(torch.ones(2, 3)), function(torch.ones(2, 3)), strict=True):
            assert torch.equal(got, want)
    torch._dynamo.reset()


def test_a_view_of_what_nobody_else_has_is_a_result_like_others(compiled):
    _, _, made = compiled
    net = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Flatten(0)).eval()
    x, count = torch.randn(3, 6), len(made)
    with torch.no_grad():
        got = torch.compile(net, backend=torch_backend.backend, options={"profile": False})(x)
        torch.testing.assert_close(got, net(x))
    assert len(made) == count + 1


def test_numbers_of_python_may_change_from_call_to_call():
    fast = torch.compile(lambda x, number: x * number, backend=torch_backend.backend, options={"profile": False})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # from the second on the number is a tensor's item
        for number in (2.0, 3.0, 4.5):
            assert torch.equal(fast(torch.ones(3), number), torch.full((3,), number))
    torch._dynamo.reset()


def test_a_mode_is_inductors():
    with pytest.raises(Exception, match="mode is 'reduce-overhead', which is inductor's"):  # torch's own
        torch.compile(torch.nn.ReLU(), backend=torch_backend.backend, mode="reduce-overhead")(torch.zeros(3))


def test_torch_finds_the_backend_by_its_name():
    setup = ConfigParser()
    setup.read(Path(__file__).resolve().parents[2] / "setup.cfg")
    entry = setup["options.entry_points"]["torch_dynamo_backends"].strip()
    assert entry == f"rollergen = {torch_backend.backend.__module__}:{torch_backend.backend.__name__}"
