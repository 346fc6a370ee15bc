"""test_http.py: the server's broken requests again, against the build with the sanitizers (this kind runs there)."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))

from test_server import BadRequestsTest  # noqa: E402,F401
from test_server_scripted import LostEngineTest  # noqa: E402,F401

if __name__ == "__main__":
    unittest.main()
