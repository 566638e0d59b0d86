"""Qualification: gates, datasets, the AIPerf run, the driver actor and the report."""
