"""The evaluations of the papers that this project grew from, one entry for each of their figures and tables."""
