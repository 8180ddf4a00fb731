"""What compiles and runs kernels on this machine: OpenCL and CUDA."""
