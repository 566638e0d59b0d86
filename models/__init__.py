"""Everything about detectors, with no Ray in it: catalogue, families, bundles, engines."""
