"""Whether two modules, functions or steps do the same."""
