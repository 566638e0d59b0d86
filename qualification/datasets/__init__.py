"""Datasets a gate can be run on: each module makes or reads one."""
