"""Other actor libraries under the loads of `runtime/*`, each in a process and an event loop of its own.

`bench.peers.measure` starts those processes; a module for each library is what runs in them. Those must not import
trio or the library that is measured against them.
"""
