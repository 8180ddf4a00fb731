"""The check that every candidate passes before it may win: inputs, oracles, tolerances, memory with guard zones."""
