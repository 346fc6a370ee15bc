"""test_server_hybrid.py: a model with recurrent states behind moert: requests that share steps, slots that get new owners, an engine that is killed.

The model is golden/tiny_models.py's qwen35moe. Every answer is compared with its golden: a state that is another sequence's, a step's too old, or not
begun anew gives other tokens. (The golden's best two tokens are further apart than what other kernels change.)"""
import json
import os
import pathlib
import sys
import threading
import unittest

os.environ["SERVER_KIND"] = "real"
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))

import tiny_models  # noqa: E402
from server_client import BUILD, Server, Stream, join, real_image  # noqa: E402

NAME = "qwen35moe"
GOLDEN = json.loads(pathlib.Path(__file__).parent.parent.joinpath("golden", f"tiny-{NAME}.json").read_text())["samples"]


def compile_tiny():
    model = pathlib.Path(BUILD, "tests-server", f"tiny-{NAME}.gguf")
    model.parent.mkdir(parents=True, exist_ok=True)
    data = tiny_models.gguf(NAME)
    if not model.exists() or model.read_bytes() != data:
        model.write_bytes(data)
    return real_image(str(model))


def fields(sample, **more):
    return dict(prompt=sample["prompt_ids"], temperature=0, max_tokens=len(sample["ids"]), **more)


class HybridTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--slots", "3", image=compile_tiny())

    @classmethod
    def tearDownClass(cls):
        with cls.server:
            pass

    def check(self, reply, sample):
        self.assertEqual(reply.text(), sample["text"])

    def test_requests_that_share_steps(self):
        # more of them than slots, long and short prompts in turn: they are in each other's windows, and take each other's slots
        replies = [None] * 8

        def one(i):
            replies[i] = self.server.request("POST", "/v1/completions", fields(GOLDEN[i % 2]))
        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(replies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i, reply in enumerate(replies):
            self.check(reply, GOLDEN[i % 2])

    def test_slots_get_new_owners(self):
        # a stop string and a vanished client end a sequence while a step that goes on with it is under way
        for sample in GOLDEN:
            stop = sample["text"][4:6]
            reply = self.server.request("POST", "/v1/completions", fields(sample, stop=[stop]))
            self.assertEqual(reply.text(), sample["text"][:sample["text"].index(stop)])
            stream = Stream(self.server, "/v1/completions", dict(fields(sample), max_tokens=80, ignore_eos=True))
            next(stream.events())
            stream.close()
            for again in GOLDEN:
                self.check(self.server.request("POST", "/v1/completions", fields(again)), again)

    def test_engine_killed_in_mid_stream(self):
        for sample in GOLDEN:
            before = self.server.restarts()
            stream = Stream(self.server, "/v1/completions", dict(fields(sample), max_tokens=90, ignore_eos=True,
                                                                 stream_options={"include_usage": True}))
            events = []
            for event in stream.events():
                events.append(event)
                if len(events) == 2:
                    self.server.kill_engine()
            self.assertTrue(stream.done)
            self.assertEqual(self.server.restarts(), before + 1)
            self.assertEqual(events[-1]["usage"]["completion_tokens"], 90)
            self.assertEqual(join(events)[:len(sample["text"])], sample["text"])


if __name__ == "__main__":
    unittest.main()
