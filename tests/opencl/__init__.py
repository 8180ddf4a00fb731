"""OpenCL devices with memory of their own.  PoCL's CPU is one where it is opened by buffers: it then works on copies."""
