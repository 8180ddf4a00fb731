"""The optional learned verifier: measurements collected, rankers trained on them, evaluated, asked."""
