"""Tests on every supported Python of which an interpreter is present: `nox`, or `nox -- tests/expr` for a part."""

import nox


@nox.session(python=["3.10", "3.11", "3.12", "3.13", "3.14"], venv_backend="venv")
def tests(session: nox.Session) -> None:
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs)
