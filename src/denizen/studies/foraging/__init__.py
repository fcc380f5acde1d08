"""The study of foragers: evaluation, constructed scenes, values without skill, and the report."""
