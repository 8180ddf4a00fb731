"""What is kept from one program to the next, dropped: for tests that patch the generator."""

from rollergen.emit import index_code
from rollergen.expr import index


def forget():
    """Drops the indices and their texts that are kept."""
    index.forget()
    index_code.forget()
