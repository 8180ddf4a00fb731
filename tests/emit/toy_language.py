"""A made-up language, as a package brings one: OpenCL C in words of its own, which its runtime knows how to compile."""

from typing import ClassVar

from rollergen.emit.opencl import OpenCL
from rollergen.hal.languages import Language
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime

WORDS = {"procedure": "kernel void", "shared_by_all": "global"}


class Toy(OpenCL):
    language = "toy"
    scopes: ClassVar = {**OpenCL.scopes, "global": "shared_by_all "}

    def head(self, kernel):
        parameters = ", ".join(self.parameter(one) for one in kernel.parameters)
        return f"procedure {kernel.name}({parameters})"


class ToyRuntime(OpenCLRuntime):
    def compile(self, text, options=(), alone=(False,)):
        for word, meant in WORDS.items():
            text = text.replace(word, meant)
        return super().compile(text, options, alone)


TOY = Language(name="toy", printer=lambda device: Toy(), suffix="toy", runtime=lambda device: ToyRuntime())
