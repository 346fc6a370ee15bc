"""Every family of tiny_models.py in all windows (test_tiny.py)."""
import test_tiny
import tiny_models

test_tiny.main(tiny_models.FAMILIES, True)
