"""Bulk-synchronous machines, whole: tiles without a common memory that compute in turns with an exchange (the IPU).

The modules have the names of the rooms whose protocol they keep: the rest of rollergen asks for them, when it has to,
where a program has tile mappings (`RProgram.tile_mappings`), or a device supersteps (`Kind.supersteps`).
"""
