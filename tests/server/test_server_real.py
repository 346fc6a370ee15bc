"""test_server_real.py: test_server.py's tests against moert itself with the embedded model, and one that needs a device."""
import os

os.environ["SERVER_KIND"] = "real"

import unittest  # noqa: E402

from server_client import Server  # noqa: E402
from test_server import BadRequestsTest, ServerTest  # noqa: E402,F401


class LongStepTest(unittest.TestCase):
    def test_a_long_step_is_no_hang(self):
        # one thread of a CPU driver works on this prompt's step for several times --engine-timeout
        options = ("--ctx", "1024", "--slots", "1", "--engine-timeout", "1")
        with Server(*options, env={"LP_NUM_THREADS": "1"}) as server:
            reply = server.complete("a cat is a house. " * 100, temperature=0, max_tokens=2, ignore_eos=True)
            self.assertEqual(reply.status, 200, "".join(server.log))
            self.assertEqual(server.restarts(), 0)


if __name__ == "__main__":
    unittest.main()
