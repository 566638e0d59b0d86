"""One folder for each detector architecture; models/family.py says what each must offer."""
