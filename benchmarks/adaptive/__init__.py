"""How well adaptive mode finds the limits of providers, played in virtual time."""
