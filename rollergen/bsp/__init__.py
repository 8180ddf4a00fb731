"""Bulk-synchronous machines, whole: tiles without a common memory that compute in turns with an exchange (the IPU).

The modules have the names of the rooms whose protocol they keep.  Nothing imports them: their `Language` brings them
(`hal.languages.Machine`), for devices of that language (`Kind.machine`) and programs with tile mappings.
"""
