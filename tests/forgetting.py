"""What is kept from one program to the next, dropped: for tests that patch the generator, and for benches."""

from types import ModuleType

from rollergen.emit import index_code
from rollergen.expr import index


def forget(*modules: ModuleType) -> None:
    """Drops all results that functions of `modules` keep; without any, the indices and their texts."""
    for module in modules or (index, index_code):
        for function in vars(module).values():
            if hasattr(function, "cache_clear") and function.__module__ == module.__name__:
                function.cache_clear()
