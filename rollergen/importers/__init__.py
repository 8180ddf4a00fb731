"""Models of other frameworks as graphs of operators: torch and ONNX, an operator a line of a table."""
