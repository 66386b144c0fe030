"""The accuracy of adaptive mode's estimated limits, simulated in virtual time."""
