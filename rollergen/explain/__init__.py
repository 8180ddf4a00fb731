"""Why a kernel is as it is, and what other figures of its device would change."""
