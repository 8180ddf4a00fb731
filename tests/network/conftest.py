"""What tests of models count."""

import pytest


@pytest.fixture
def counts(monkeypatch):
    """How often programs were constructed, and sources compiled."""
    from rollergen.construct import choose
    from rollergen.runtime.executor import RuntimeExecutor

    found = {"constructed": 0, "compiled": 0}

    def counted(owner, name, what):
        original = getattr(owner, name)

        def counting(*arguments, **named):
            found[what] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, counting)

    counted(choose, "_constructed", "constructed")
    counted(RuntimeExecutor, "prepare", "compiled")
    return found
