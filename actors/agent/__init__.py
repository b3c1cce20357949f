"""Agent sessions: the record that decides, the actor that owns it, the run that carries it out."""
