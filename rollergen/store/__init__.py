"""What builds leave for later ones: kernels, programs and measurements in one SQLite file."""
