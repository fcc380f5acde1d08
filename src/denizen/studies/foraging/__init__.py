"""How foragers live: evaluation, constructed scenes, what no skill would reach, and the report of all of it."""
