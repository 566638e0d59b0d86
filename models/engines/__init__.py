"""The engines there are, a module each, and the choice between them (choice.py)."""
