from rollergen.construct.choose import Ranked, construct

__all__ = ["Ranked", "construct"]
