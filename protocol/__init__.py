"""What a session may do and what follows from it: pure rules, no I/O.

Nothing here knows trio, sockets, clocks or randomness. Time comes in as `now` (Unix seconds), identity as the
sequence number of the record that made it. `actors` carries out what these modules decide.
"""
