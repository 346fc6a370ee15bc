"""test_server_real.py: test_server.py's tests against moert itself with the embedded model."""
import os

os.environ["SERVER_KIND"] = "real"

import unittest  # noqa: E402

from test_server import BadRequestsTest, ServerTest  # noqa: E402,F401

if __name__ == "__main__":
    unittest.main()
