"""A network cut into steps, each one expression of stored values, or one node that the model's own library runs.

A contraction or a row chain opens a step; what reads it element by element joins, where it alone does.  Views are
never stored but as results and for the model's own library; a value that several steps read is, and so are all parts
of a join of which most are: they can be written where the join has them (see `places.Places`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import Any

from rollergen.errors import RollergenError
from rollergen.expr.dtypes import PACKED
from rollergen.expr.language import Tensor, compute, tensor
from rollergen.expr.reads import computed_tensors
from rollergen.expr.reductions import Reduce, scans_of
from rollergen.expr.values import Load, Select, loads, takes, walk
from rollergen.hal.dataclass import dataclass
from rollergen.importers.graph import Network, Node, NotExpressedError, Value, identifier
from rollergen.network.images import Halo, channels_last, channels_second, stored_last

VIEW, JOIN, ELEMENTS, CHAIN = "view", "join", "elements", "chain"
"""What an output is of its node's inputs: rearranged elements; those of one input or of another, by their place;
computed element by element; reduced."""

Layouts = Mapping[str, Halo]
"""Images between steps that are stored with their channels last, by their names, and the zeros around each."""
NO_LAYOUTS: Layouts = {}


@dataclass(frozen=True, slots=True)
class Step:
    """``nodes``: those whose results it computes, of which the last one's is stored.  ``inputs``: the stored values and
    constants that it reads, in the order of ``given``, the tensors that stand for them in ``expression``; of a step
    that the model's own library runs, ``expression`` is None and ``reason`` says why.  ``defined``: gives these two,
    which are made when somebody asks.  ``alike``: steps with the same text have the same expression, but for the names
    of their tensors; "" where nobody can tell."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[Value, ...]
    defined: Callable[[], tuple[Tensor, tuple[Tensor, ...]]] | None = None
    reason: str = ""
    alike: str = ""

    @property
    def expression(self) -> Tensor | None:
        return None if self.defined is None else self.defined()[0]

    @property
    def given(self) -> tuple[Tensor, ...]:
        return () if self.defined is None else self.defined()[1]

    @property
    def source(self) -> str:
        """The names of its nodes in the model, from the first to the last."""
        first, last = self.nodes[0].source, self.nodes[-1].source
        return first if first == last else f"{first} .. {last}"

    @property
    def operators(self) -> str:
        """What it computes, views left out where there is anything else."""
        return ", ".join(dict.fromkeys(node.operator for node in self.nodes))


def steps_of(
    network: Network, taking: bool = True, last: Layouts = NO_LAYOUTS, loose: Collection[str] = ()
) -> tuple[Step, ...]:
    """The steps of `network` in the order in which they run; ``taking``: whether kernels may take elements at places
    that are read; ``last``: images between steps that are stored with their channels last (see `layouts`); ``loose``:
    constants that kernels read as any other value, as they are others at other sizes."""
    return _Partition(network, taking, last, frozenset(loose)).steps()


def steps_again(
    network: Network, steps: Sequence[Step], last: Layouts = NO_LAYOUTS, loose: Collection[str] = ()
) -> tuple[Step, ...]:
    """The `steps` of a network that differs from this one in its sizes alone; ``last`` and ``loose`` as they were."""
    part = _Partition(network, True, last, frozenset(loose))
    return tuple(map(part.again, steps))


@dataclass
class _Partition:
    network: Network
    may_take: bool
    last: Layouts
    loose: frozenset[str]
    values: dict[str, Value] = field(init=False)
    makers: dict[str, Node] = field(init=False)
    kinds: dict[str, str] = field(init=False, default_factory=dict)
    reasons: dict[str, str] = field(init=False, default_factory=dict)
    known: dict[Any, _Found] = field(init=False, default_factory=dict)
    taking: set[str] = field(init=False, default_factory=set)
    stored: set[str] = field(init=False)

    def __post_init__(self) -> None:
        network = self.network
        constants = (Value(name, one.shape, one.dtype.name) for name, one in network.constants.items())
        made = (value for node in network.nodes for value in node.outputs)
        self.values = {value.name: value for value in (*constants, *network.inputs, *made)}
        self.makers = {value.name: node for node in network.nodes for value in node.outputs}
        self.stored = {*network.constants, *(one.name for one in network.inputs)}

    def steps(self) -> tuple[Step, ...]:
        nodes = self._read()
        wanted = Counter(name for node in nodes for name in node.inputs) + Counter(self.network.outputs)
        for node in nodes:
            self._classify(node, wanted)
        self._store(nodes, self._readers(nodes))
        return tuple(step for node in nodes for step in self._steps(node))

    def _read(self) -> list[Node]:
        """The nodes of which anything is used."""
        used = set(self.network.outputs)
        for node in reversed(self.network.nodes):
            if any(value.name in used for value in node.outputs):
                used.update(node.inputs)
        return [node for node in self.network.nodes if any(value.name in used for value in node.outputs)]

    def _classify(self, node: Node, wanted: Mapping[str, int]) -> None:
        """Finds what each output is; where one that is wanted cannot be expressed, why not."""
        key = None if node.alike is None else _text([node], self.values, self.network.constants)
        try:
            if (found := self.known.get(key)) is None:
                made = node.express({name: self._given(name, identifier(name)) for name in self._tensors(node)})
                found = tuple(None if one is None else (kind_of(one), _scans(one), _takes(one)) for one in made)
            for one, value in zip(found, node.outputs, strict=False):
                if one is None and wanted[value.name]:
                    raise NotExpressedError(f"its result {value.name} has no counterpart")
                if one is not None:
                    self.kinds[value.name], scans, takes = one
                    if scans and not self.may_take:
                        raise NotExpressedError("a machine of tiles has no tiles of a scan")
                    if takes:
                        self.taking.add(node.source)
                        if not self.may_take:
                            raise NotExpressedError("a machine of tiles takes no elements at places that are read")
        except (NotExpressedError, RollergenError, TypeError) as error:
            self.reasons[node.source] = str(error)
        else:
            if key is not None:
                self.known[key] = found

    def _readers(self, nodes: list[Node]) -> Counter[str]:
        """How many steps would read each value, by itself or through views."""
        found = Counter(self.network.outputs)
        for node in reversed(nodes):
            views = all(self.kinds.get(value.name) == VIEW for value in node.outputs)
            through = sum(found[value.name] for value in node.outputs)
            for name in node.inputs:
                found[name] += through if views and node.source not in self.reasons else 1
        return found

    def _store(self, nodes: list[Node], readers: Mapping[str, int]) -> None:
        """Decides which values are stored; ``chains``: those of the others that a step would have to reduce for."""
        chains: set[str] = set()
        # Places that are read are looked at before the step that takes elements there; tables lie in memory.
        self.stored.update(name for node in nodes if node.source in self.taking for name in node.inputs)
        for node in nodes:
            if node.source in self.reasons:
                self.stored |= {*node.inputs, *(value.name for value in node.outputs)}
                continue
            for value in node.outputs:
                kind = self.kinds.get(value.name, CHAIN)
                parts = [name for name in node.inputs if self.kinds.get(name) != VIEW]
                if kind == JOIN and 2 * sum(name in self.stored for name in parts) > len(parts):
                    self.stored.update(parts)
                opened = [name for name in node.inputs if name in chains and name not in self.stored]
                joined = [name for name in opened if kind != CHAIN and self.values[name].size == value.size][-1:]
                self.stored |= {*opened} - {*joined}
                if joined or kind == CHAIN:
                    chains.add(value.name)
                if value.name in self.network.outputs or (kind != VIEW and readers[value.name] > 1):
                    self.stored.add(value.name)

    def _steps(self, node: Node) -> list[Step]:
        if node.source in self.reasons:
            return [Step((node,), node.inputs, node.outputs, reason=self.reasons[node.source])]
        return [self._step(value) for value in node.outputs if value.name in self.stored and value.name in self.kinds]

    def _step(self, value: Value) -> Step:
        inputs: dict[str, None] = {}
        nodes: dict[str, Node] = {}

        def visit(name: str) -> None:
            if name in self.stored and name != value.name:
                inputs[name] = None
            elif self.makers[name].source not in nodes:
                for one in self._tensors(self.makers[name]):
                    visit(one)
                nodes[self.makers[name].source] = self.makers[name]

        visit(value.name)
        return self._made(value, tuple(nodes.values()), tuple(inputs))

    def again(self, step: Step) -> Step:
        """A step of the same nodes of another network."""
        made = tuple(self.makers[node.outputs[0].name] for node in step.nodes)
        if step.defined is None:
            return replace(step, nodes=made, outputs=made[0].outputs)
        return self._made(self.values[step.outputs[0].name], made, step.inputs)

    def _made(self, value: Value, made: tuple[Node, ...], given: tuple[str, ...]) -> Step:
        """The step that stores a value, of these nodes and stored inputs."""
        halo = self.last.get(value.name)
        text = _text(made, self.values, self.network.constants)
        moved = [self.last.get(name) for name in given]
        alike = text and repr((text, [one.name for one in made[-1].outputs].index(value.name), moved, halo))
        defined = lru_cache(maxsize=1)(lambda: self._definition(value, made, given))
        return Step(made, given, (value if halo is None else stored_last(value, halo),), defined, alike=alike)

    def _definition(
        self, value: Value, nodes: Sequence[Node], inputs: Sequence[str]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(the step's expression, the tensors that stand for its inputs)."""
        given: list[Tensor] = []
        made: dict[str, Tensor] = {}
        for name in inputs:
            given.append(self._stored(name, identifier(name, {one.name for one in given})))
            halo = self.last.get(name)
            made[name] = given[-1] if halo is None else channels_second(given[-1], halo)
        for node in nodes:
            outputs = zip(node.outputs, node.express({one: made[one] for one in self._tensors(node)}), strict=False)
            made.update({output.name: one for output, one in outputs if one is not None})
        found = made[value.name]
        if value.name in self.last:
            found = channels_last(found, self.last[value.name])
        elif found.producer is None:  # a result may not be an argument itself
            whole = found
            found = compute(whole.shape, lambda *i: whole[i])
        return found, tuple(given)

    def _tensors(self, node: Node) -> list[str]:
        """The inputs that are tensors of an expression: constants without axes are numbers of its text."""
        return [name for name in node.inputs if self.values[name].shape or name not in self.network.constants]

    def _given(self, name: str, called: str) -> Tensor:
        value = self.values[name]
        if value.shape is None:
            raise NotExpressedError(f"the shape of {name} depends on data")
        if value.dtype in PACKED:
            raise NotExpressedError(f"{name} is {value.dtype}, which weights alone may be")
        held = name in self.network.constants and name not in self.loose
        return tensor(called, value.shape, value.dtype, constant=held)

    def _stored(self, name: str, called: str) -> Tensor:
        """The value as steps find it in memory."""
        if name not in self.last:
            return self._given(name, called)
        value = stored_last(self.values[name], self.last[name])
        assert value.shape is not None
        return tensor(called, value.shape, value.dtype)


_Found = tuple[tuple[str, bool, bool] | None, ...]
"""Of each output that can be expressed: what it is, whether it asks for prefixes of an axis, whether it takes elements
at places that are read."""


def _text(nodes: Sequence[Node], values: Mapping[str, Value], constants: Container[str]) -> str:
    """What `nodes` compute, values called by the order in which they are read or made; "" where nobody can tell."""
    numbers: dict[str, str] = {}
    of = lambda name: numbers.setdefault(name, f"v{len(numbers)}")
    texts = []
    for node in nodes:
        if node.alike is None:
            return ""
        texts.append(node.alike(of))
    made = {value.name for node in nodes for value in node.outputs}
    read = [(of(n), values[n].shape, values[n].dtype, n in constants) for n in numbers if n not in made]
    return repr((texts, read))


def kind_of(made: Tensor) -> str:
    """What a node's or a step's output is of its inputs."""
    bodies = [one.producer.body for one in computed_tensors([made]) if one.producer is not None]
    if any(isinstance(value, Reduce) for body in bodies for value in walk(body)):
        return CHAIN
    if all(isinstance(body, Load) for body in bodies):
        return VIEW
    return JOIN if all(map(_joins, bodies)) else ELEMENTS


def _joins(body: Any) -> bool:
    """Whether it is an element of this tensor or of that one, by its place."""
    while isinstance(body, Select) and isinstance(body.a, Load) and not loads(body.cond):
        body = body.b
    return isinstance(body, Load)


def _scans(made: Tensor) -> bool:
    """Whether prefixes of an axis are asked for."""
    return any(scans_of(one.producer.body) for one in computed_tensors([made]) if one.producer is not None)


def _takes(made: Tensor) -> bool:
    """Whether elements are taken at places that are read."""
    return any(takes(one.producer.body) for one in computed_tensors([made]) if one.producer is not None)
