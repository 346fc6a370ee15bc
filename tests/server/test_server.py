"""test_server.py: the server over real HTTP, in ways that hold for every engine: expectations come from the server's own
whole, greedy answer. Runs against the scripted engine here, against the real one in test_server_real.py."""
import json
import os
import random
import re
import socket
import sys
import threading
import time
import unittest

from server_client import REAL, Server, Stream, finish, join, piece

# A long deterministic answer and a short one, for either engine.
LONG = {"prompt": "A guitar is", "temperature": 0, "ignore_eos": True, "max_tokens": 80} if REAL else \
       {"prompt": "slow:2,count:500|", "temperature": 0, "max_tokens": 600}
SHORT = {"prompt": "A dog is", "temperature": 0, "max_tokens": 24} if REAL else \
        {"prompt": "say:A dog is an animal. It barks.|", "temperature": 0, "max_tokens": 24}
QUESTION = "What is a guitar?" if REAL else "say:The guitar is an instrument. I like it."
SAMPLED = {"prompt": "A house is", "temperature": 1.0, "top_k": 0, "top_p": 1, "min_p": 0, "max_tokens": 24} if REAL else \
          {"prompt": "rand:24|", "temperature": 1.0, "max_tokens": 24}


class ServerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--timeout", "3")

    @classmethod
    def tearDownClass(cls):
        with cls.server:
            pass

    def tearDown(self):
        self.wait_live(0)  # nothing keeps generating after its test

    def wait_live(self, count, seconds=5):
        end = time.monotonic() + seconds
        while self.server.request("GET", "/health").json().get("live_requests") != count:
            self.assertLess(time.monotonic(), end, f"live requests stay different from {count}")
            time.sleep(0.01)

    def completions(self, **fields):
        return self.server.request("POST", "/v1/completions", fields)

    # ---- answers ----

    def test_models(self):
        reply = self.server.request("GET", "/v1/models")
        self.assertEqual(reply.status, 200)
        model = reply.json()["data"][0]
        self.assertEqual(model["object"], "model")
        self.assertGreater(model["meta"]["n_ctx"], 0)

    def test_chat(self):
        reply = self.server.chat(QUESTION, temperature=0, max_tokens=32)
        body = reply.json()
        self.assertEqual(body["object"], "chat.completion")
        self.assertEqual(body["choices"][0]["message"]["role"], "assistant")
        self.assertTrue(reply.text())
        usage = body["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        self.assertIn(body["choices"][0]["finish_reason"], ("stop", "length"))

    def test_chat_content_parts(self):
        whole = self.server.chat(QUESTION, temperature=0, max_tokens=8)
        parts = self.server.chat([{"type": "text", "text": QUESTION}], temperature=0, max_tokens=8)
        self.assertEqual(whole.text(), parts.text())

    def test_stream_equals_whole(self):
        for path, fields in (("/v1/completions", SHORT),
                             ("/v1/chat/completions", {"messages": [{"role": "user", "content": QUESTION}],
                                                       "temperature": 0, "max_tokens": 32})):
            whole = self.server.request("POST", path, fields)
            stream = Stream(self.server, path, dict(fields, stream_options={"include_usage": True}))
            text, reason, events = stream.read()
            self.assertTrue(stream.done)
            self.assertEqual(text, whole.text())
            self.assertEqual([e for e in events if e["choices"]][-1]["choices"][0]["finish_reason"],
                             whole.choice()["finish_reason"])
            self.assertEqual(events[-1]["usage"], whole.json()["usage"])
            self.assertEqual(len({e["id"] for e in events}), 1)
            self.assertTrue(whole.json()["id"] not in {e["id"] for e in events})

    def test_max_tokens(self):
        for name in ("max_tokens", "n_predict"):
            fields = {k: v for k, v in LONG.items() if k != "max_tokens"}
            reply = self.completions(**fields, **{name: 7})
            self.assertEqual(reply.json()["usage"]["completion_tokens"], 7)
            self.assertEqual(reply.choice()["finish_reason"], "length")
        reply = self.server.chat(QUESTION, max_completion_tokens=3, max_tokens=9)
        self.assertEqual(reply.json()["usage"]["completion_tokens"], 3)

    def test_seed(self):
        one, two, other = (self.completions(**SAMPLED, seed=seed).text() for seed in (7, 7, 8))
        self.assertEqual(one, two)
        self.assertNotEqual(one, other)
        self.assertNotEqual(self.completions(**SAMPLED).text(), self.completions(**SAMPLED).text())
        large = [self.completions(**SAMPLED, seed=seed).text() for seed in (2**63 - 1, 2**63 - 2, -2**63, 2**53 + 1, 2**53)]
        self.assertEqual(len(set(large)), len(large))

    def test_stop_strings(self):
        text = self.completions(**SHORT).text()
        self.assertGreater(len(text), 12)
        for start, length in ((3, 1), (5, 4), (8, 2)):
            stop = text[start:start + length]
            expected = text[:text.index(stop)]
            for stops in (stop, ["never to be found", stop]):
                reply = self.completions(**SHORT, stop=stops)
                self.assertEqual(reply.text(), expected)
                self.assertEqual(reply.choice()["finish_reason"], "stop")
                streamed, reason, _ = Stream(self.server, "/v1/completions", dict(SHORT, stop=stops)).read()
                self.assertEqual((streamed, reason), (expected, "stop"))

    def test_stop_string_begun_only(self):
        text = self.completions(**SHORT).text()
        stop = text[-3:] + "\x02"  # its beginning is the end of the answer: held back, then given out
        self.assertEqual(self.completions(**SHORT, stop=stop).text(), text)
        self.assertEqual(Stream(self.server, "/v1/completions", dict(SHORT, stop=stop)).read()[0], text)

    def test_chat_logprobs(self):
        fields = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 8,
                  "logprobs": True, "top_logprobs": 3}
        reply = self.server.request("POST", "/v1/chat/completions", fields)
        content = reply.choice()["logprobs"]["content"]
        joined = bytes(b for token in content for b in token["bytes"])
        self.assertEqual(joined.decode("utf-8", "replace"), reply.text())
        for token in content:
            self.assertEqual(len(token["top_logprobs"]), 3)
            self.assertLessEqual(token["logprob"], 0)
            tops = [top["logprob"] for top in token["top_logprobs"]]
            self.assertEqual(tops, sorted(tops, reverse=True))
            self.assertAlmostEqual(tops[0], token["logprob"], places=4)  # greedy
        _, _, events = Stream(self.server, "/v1/chat/completions", fields).read()
        streamed = [token for e in events for token in ((e["choices"][0].get("logprobs") or {}).get("content") or [])]
        self.assertEqual([t["bytes"] for t in streamed], [t["bytes"] for t in content])
        plain = self.server.request("POST", "/v1/chat/completions", dict(fields, top_logprobs=0))
        self.assertEqual(plain.choice()["logprobs"]["content"][0]["top_logprobs"], [])

    def test_text_logprobs(self):
        reply = self.completions(**dict(SHORT, max_tokens=6), logprobs=2)
        logprobs = reply.choice()["logprobs"]
        self.assertEqual(sorted(logprobs), ["text_offset", "token_logprobs", "tokens", "top_logprobs"])
        self.assertEqual(len({len(column) for column in logprobs.values()}), 1)
        for offset, token in zip(logprobs["text_offset"], logprobs["tokens"]):
            self.assertTrue(reply.text().encode()[offset:].decode("utf-8", "replace").startswith(token))
        self.assertIsNone(self.completions(**SHORT).choice()["logprobs"])

    def test_prompt_as_ids(self):
        reply = self.completions(prompt=[65, 66, 67], max_tokens=2)
        self.assertEqual(reply.status, 200)
        self.assertEqual(reply.json()["usage"]["prompt_tokens"], 3)
        self.assertEqual(self.completions(**dict(SHORT, prompt=[SHORT["prompt"]])).text(), self.completions(**SHORT).text())

    def test_null_is_absent(self):
        nulls = {name: None for name in ("temperature", "top_p", "stop", "seed", "stream", "stream_options", "tools",
                                         "response_format", "logit_bias", "n", "user", "frequency_penalty")}
        self.assertEqual(self.server.chat(QUESTION, **nulls, max_tokens=2).status, 200)

    def test_unknown_fields_are_ignored(self):
        self.assertEqual(self.completions(**SHORT, cache_prompt=True, no_such_thing={"a": 1}).status, 200)

    def test_neutral_values_of_unsupported_fields(self):
        reply = self.server.chat(QUESTION, max_tokens=2, n=1, presence_penalty=0, frequency_penalty=0.0, logit_bias={},
                                 tools=[], tool_choice="auto", response_format={"type": "text"})
        self.assertEqual(reply.status, 200)

    def test_context_overflow(self):
        n_ctx = self.server.request("GET", "/v1/models").json()["data"][0]["meta"]["n_ctx"]
        reply = self.completions(prompt=[65] * n_ctx, max_tokens=1)
        self.assertEqual(reply.status, 400)
        error = reply.error()
        self.assertEqual(error["code"], "context_length_exceeded")
        self.assertIn(str(n_ctx), error["message"])
        error = self.completions(prompt="one two " * n_ctx, max_tokens=1).error()  # counted no further than needed
        self.assertEqual(error["code"], "context_length_exceeded")
        self.assertIn(f"found more than {n_ctx - 1} tokens, allowed: at most {n_ctx - 1}", error["message"])
        # One token less fits, and ends with the context.
        reply = self.completions(prompt=[65] * (n_ctx - 1), max_tokens=50, ignore_eos=True)
        self.assertEqual(reply.choice()["finish_reason"], "length")
        self.assertEqual(reply.json()["usage"]["completion_tokens"], 1)

    # ---- many at once ----

    def test_concurrent_requests_do_not_mix(self):
        expected = self.completions(**SHORT).text()
        long_text = self.completions(**dict(LONG, max_tokens=40)).text()
        results, threads = [], []

        def one(fields, want):
            results.append(self.completions(**fields).text() == want)

        count = 8 if REAL else 16
        for i in range(count):
            fields, want = (SHORT, expected) if i % 2 else (dict(LONG, max_tokens=40), long_text)
            threads.append(threading.Thread(target=one, args=(fields, want)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # A batch may flip a near-tie of the real model (other kernels for other batch sizes), not of the scripted one.
        self.assertEqual(len(results), count)
        if not REAL:
            self.assertTrue(all(results))

    def test_vanished_client(self):
        for stream in (True, False):
            body = json.dumps(dict(LONG, stream=stream)).encode()
            with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
                connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                self.wait_live(1)
                if stream:
                    connection.recv(100)
            self.wait_live(0, seconds=1)

    def test_vanished_client_by_reset(self):
        body = json.dumps(LONG).encode()
        connection = socket.create_connection(("127.0.0.1", self.server.port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.wait_live(1)
        connection.close()
        self.wait_live(0, seconds=1)

    # ---- a lost engine ----

    def test_engine_killed_in_mid_stream(self):
        expected = self.completions(**LONG)
        before = self.server.restarts()
        stream = Stream(self.server, "/v1/completions", dict(LONG, stream_options={"include_usage": True}))
        events = []
        for event in stream.events():
            events.append(event)
            if len(events) == 20:
                self.server.kill_engine()
        self.assertTrue(stream.done)
        self.assertEqual(self.server.restarts(), before + 1)
        self.assertEqual(events[-1]["usage"], expected.json()["usage"])
        self.same_text(join(events), expected.text())

    def same_text(self, found, expected):
        """Equal, but for a near-tie of the real model: the replayed part went through other kernels."""
        if not REAL:
            self.assertEqual(found, expected)
        else:
            self.assertEqual(found[:20], expected[:20])

    def test_engine_killed_with_many_requests(self):
        count, n_tok = (4, 40) if REAL else (6, 60)
        fields = dict(LONG, max_tokens=n_tok)
        expected = self.completions(**fields).text()
        results, threads = [], []
        for _ in range(count):
            threads.append(threading.Thread(target=lambda: results.append(self.completions(**fields))))
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        self.server.kill_engine()
        for thread in threads:
            thread.join()
        self.assertEqual([r.status for r in results], [200] * count)
        for reply in results:
            self.assertEqual(reply.json()["usage"]["completion_tokens"], n_tok)
            self.same_text(reply.text(), expected)

    # ---- HTTP ----

    def test_keep_alive_and_pipelining(self):
        request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        received = self.server.raw(request * 3 + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        self.assertEqual(received.count(b"HTTP/1.1 200 OK"), 4)
        received = self.server.raw(b"GET /health HTTP/1.0\r\n\r\n")
        self.assertEqual(received.count(b"HTTP/1.1 200 OK"), 1)
        self.assertIn(b"Connection: close", received)

    def test_chunked_body(self):
        body = json.dumps(SHORT).encode()
        chunks = b"".join(b"%x;a=b\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7]) for i in range(0, len(body), 7))
        received = self.server.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                   b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nTrailer: x\r\n\r\n")
        self.assertTrue(received.startswith(b"HTTP/1.1 200"), received)

    def test_expect_continue(self):
        body = json.dumps(SHORT).encode()
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
                               % len(body))
            self.assertTrue(connection.recv(100).startswith(b"HTTP/1.1 100 Continue"))
            connection.sendall(body)
            self.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 200"))

    def test_byte_by_byte(self):
        request = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as connection:
            for i in range(len(request)):
                connection.sendall(request[i:i + 1])
            self.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 200"))

    def test_head_and_methods(self):
        received = self.server.raw(b"HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        self.assertTrue(received.startswith(b"HTTP/1.1 200"))
        self.assertTrue(received.endswith(b"\r\n\r\n"))
        for method, path, status, allow in (("GET", "/v1/completions", 405, "POST"), ("POST", "/health", 405, "GET, HEAD"),
                                            ("OPTIONS", "/v1/models", 405, "GET, HEAD"), ("DELETE", "/v1/models", 405, "GET, HEAD"),
                                            ("GET", "/", 404, None), ("GET", "/v1/nothing", 404, None)):
            reply = self.server.request(method, path)
            self.assertEqual(reply.status, status, (method, path))
            self.assertEqual(reply.headers.get("Allow"), allow)
            self.assertTrue(reply.error()["message"])
        self.assertEqual(self.server.request("GET", "/health/").status, 200)
        self.assertEqual(self.server.request("GET", "/health?x=1").status, 200)

    def test_slow_request_times_out(self):
        start = time.monotonic()
        received = self.server.raw(b"GET /health HTTP/1.1\r\nHo", timeout=20)
        self.assertTrue(received.startswith(b"HTTP/1.1 408"), received)
        self.assertIn(b'"message"', received)
        self.assertLess(time.monotonic() - start, 10)
        self.assertEqual(self.server.raw(b"", timeout=20), b"")  # an idle connection is closed without a word


# Each line: what is sent as body, the status, words of the message.
BAD_COMPLETIONS = [
    (b"", "not valid JSON"), (b"{", "not valid JSON"), (b"{}x", "not valid JSON"), (b"[]", "not a JSON object"),
    (b'"x"', "not valid JSON"), (b"null", "not valid JSON"), (b"\xff\xfe{}", "not valid JSON"),
    (b'{"prompt": "\xff"}', "not valid JSON"), (b'{"prompt": "\xc3"}', "not valid JSON"), (b'{"prompt": "\\ud800"}', "not valid JSON"),
    (b'{"prompt": "a\\u0000b"}', "not valid JSON"), (b'{"prompt": "a", "seed": 99999999999999999999999}', "not valid JSON"),
    (b'{"prompt": "a", "temperature": 1e999}', "not valid JSON"), (b'{"prompt": "a", "temperature": NaN}', "not valid JSON"),
    (b"[" * 100000, "not valid JSON"), (b'{"a":' * 100000, "not valid JSON"),
    (b'{"prompt": "a", "x": ' + b"[" * 5000 + b"]" * 5000 + b"}", "not valid JSON"), (b"{}", "prompt: found nothing"),
    (b'{"prompt": null}', "prompt"), (b'{"prompt": 5}', "prompt: found 5"), (b'{"prompt": {}}', "prompt: found {}"),
    (b'{"prompt": []}', "prompt: found []"), (b'{"prompt": [true]}', "prompt: found"), (b'{"prompt": ["a", "b"]}', "2 prompts"),
    (b'{"prompt": [1, "a"]}', "prompt[1]"), (b'{"prompt": [-1]}', "prompt[0]: found -1"), (b'{"prompt": [1.5, 2]}', "prompt"),
    (b'{"prompt": [1, 99999999]}', "prompt[1]: found 99999999"), (b'{"prompt": [[1], [2]]}', "2 prompts"),
    (b'{"prompt": ""}', "no tokens"), (b'{"prompt": "a", "model": 5}', "model: found 5"),
    (b'{"prompt": "a", "max_tokens": 0}', "max_tokens: found 0"), (b'{"prompt": "a", "max_tokens": -2}', "max_tokens: found -2"),
    (b'{"prompt": "a", "max_tokens": "5"}', 'max_tokens: found "5"'), (b'{"prompt": "a", "max_tokens": 1.5}', "max_tokens: found 1.5"),
    (b'{"prompt": "a", "max_tokens": 99999999999}', "max_tokens: found 99999999999"),
    (b'{"prompt": "a", "temperature": -0.1}', "temperature: found -0.1"), (b'{"prompt": "a", "temperature": "hot"}', "temperature"),
    (b'{"prompt": "a", "temperature": 1000}', "temperature"), (b'{"prompt": "a", "top_p": 1.1}', "top_p: found 1.1"),
    (b'{"prompt": "a", "top_p": true}', "top_p: found true"), (b'{"prompt": "a", "top_k": 1.5}', "top_k"),
    (b'{"prompt": "a", "min_p": -1}', "min_p"), (b'{"prompt": "a", "seed": "x"}', "seed"),
    (b'{"prompt": "a", "stream": 1}', "stream: found 1"), (b'{"prompt": "a", "stream": "true"}', "stream"),
    (b'{"prompt": "a", "stop": 5}', "stop: found 5"), (b'{"prompt": "a", "stop": ["a", 5]}', "stop: found 5"),
    (b'{"prompt": "a", "stop": ["a", "b", "c", "d", "e"]}', "stop: found more than 4"), (b'{"prompt": "a", "stop": {}}', "stop"),
    (b'{"prompt": "a", "stop": "' + b"x" * 2000 + b'"}', "at most 1024"),
    (b'{"prompt": "a", "logprobs": 21}', "logprobs: found 21"), (b'{"prompt": "a", "logprobs": true}', "logprobs: found true"),
    (b'{"prompt": "a", "n": 2}', "n: found 2"), (b'{"prompt": "a", "n": "1"}', "n: found"),
    (b'{"prompt": "a", "best_of": 3}', "best_of"), (b'{"prompt": "a", "echo": true}', "echo"),
    (b'{"prompt": "a", "suffix": "b"}', "suffix"), (b'{"prompt": "a", "logit_bias": {"5": 1}}', "logit_bias"),
    (b'{"prompt": "a", "presence_penalty": 1}', "presence_penalty"), (b'{"prompt": "a", "grammar": "root ::= x"}', "grammar"),
    (b'{"prompt": "a", "stream_options": 5}', "stream_options"), (b'{"prompt": "a", "stream_options": {"include_usage": 5}}', "stream_options"),
    (b'{"prompt": "a", "ignore_eos": "yes"}', "ignore_eos"),
]
BAD_CHATS = [
    (b"{}", "messages: found nothing"), (b'{"messages": "hi"}', 'messages: found "hi"'), (b'{"messages": []}', "messages: found []"),
    (b'{"messages": [5]}', "messages[0]: found 5"), (b'{"messages": [{}]}', "messages[0].role"),
    (b'{"messages": [{"role": 5, "content": "a"}]}', "messages[0].role: found 5"),
    (b'{"messages": [{"role": "user"}]}', "messages[0].content"),
    (b'{"messages": [{"role": "user", "content": 5}]}', "messages[0].content: found 5"),
    (b'{"messages": [{"role": "user", "content": {"text": "a"}}]}', "messages[0].content"),
    (b'{"messages": [{"role": "user", "content": ["a"]}]}', "messages[0].content[0]"),
    (b'{"messages": [{"role": "user", "content": [{"type": "text"}]}]}', "messages[0].content[0]"),
    (b'{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}', "not supported"),
    (b'{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]}', "tools: found"),
    (b'{"messages": [{"role": "user", "content": "a"}], "tool_choice": "required"}', "tool_choice"),
    (b'{"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_object"}}', "not supported by this server version"),
    (b'{"messages": [{"role": "user", "content": "a"}], "functions": [{}]}', "functions"),
    (b'{"messages": [{"role": "user", "content": "a"}], "logprobs": 5}', "logprobs: found 5"),
    (b'{"messages": [{"role": "user", "content": "a"}], "top_logprobs": 5}', "top_logprobs: found 5 without logprobs"),
    (b'{"messages": [{"role": "user", "content": "a"}], "logprobs": true, "top_logprobs": 21}', "top_logprobs: found 21"),
    (b'{"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 0}', "max_completion_tokens: found 0"),
    (b'{"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": 5}', "chat_template_kwargs"),
    (b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": [{}]}]}', "tool_calls"),
]
# Bytes on the wire, and the status.
BAD_HTTP = [
    (b"\r\n\r\n\r\nnonsense\r\n\r\n", 400), (b"GET\r\n\r\n", 400), (b"GET /health\r\n\r\n", 400), (b"GET  /health HTTP/1.1\r\n\r\n", 400),
    (b"GET /health HTTP/1.1 \r\nHost: x\r\n\r\n", 400), (b"G@T /health HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET health HTTP/1.1\r\nHost: x\r\n\r\n", 400), (b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n", 505),
    (b"GET /health HTTP/1.2\r\nHost: x\r\n\r\n", 505), (b"GET /health FTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\nHost: x\n\n", 400), (b"GET /health HTTP/1.1\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400), (b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400), (b"GET /health HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: x\r\nA: \x01\r\n\r\n", 400), (b"GET /he\x00lth HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET /h\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", 400), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2;\nx\r\n{}\r\n", 400),
    (b"POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}x\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000, 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", 413),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n", 413),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 200-ok\r\nContent-Length: 2\r\n\r\n", 417),
    (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
    (b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 40000 + b"\r\n\r\n", 431), (b"GET /" + b"a" * 100000, 431),
]


class BadRequestsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        with cls.server:
            pass

    def alive(self):
        self.assertEqual(self.server.request("GET", "/health").status, 200)

    def test_bad_bodies(self):
        for path, cases in (("/v1/completions", BAD_COMPLETIONS), ("/v1/chat/completions", BAD_CHATS)):
            for body, words in cases:
                with self.subTest(body=body[:80]):
                    reply = self.server.request("POST", path, body)
                    self.assertEqual(reply.status, 400, reply.body[:300])
                    error = reply.error()
                    self.assertIn(words, error["message"])
                    self.assertEqual(error["type"], "invalid_request_error")
        self.alive()

    def test_bad_http(self):
        for data, status in BAD_HTTP:
            with self.subTest(data=data[:120]):
                received = self.server.raw(data)
                self.assertTrue(received.startswith(b"HTTP/1.1 %d " % status), received[:300])
                head, _, body = received.partition(b"\r\n\r\n")
                self.assertIn("message", json.loads(body)["error"])
                self.assertIn(b"Connection: close", head)
        self.alive()

    def test_large_body_gets_its_answer(self):
        reply = self.server.request("POST", "/v1/completions", b" " * (2 << 20))
        self.assertEqual(reply.status, 413)
        self.assertIn("1048576", reply.error()["message"])
        self.alive()

    def test_broken_off_requests(self):
        request = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n\r\n" + b'{"prompt": "a", "max_tokens":1'
        for cut in range(1, len(request), 7):
            with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
                connection.sendall(request[:cut])
        self.alive()

    def test_random_bytes(self):
        draw = random.Random(5)
        whole = b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 36\r\n\r\n{"prompt":"a|","max_tokens":1,"n":1}'
        for _ in range(300):
            data = bytearray(whole)
            for _ in range(draw.randrange(1, 6)):
                data[draw.randrange(len(data))] = draw.randrange(256)
            with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
                connection.settimeout(60)
                connection.sendall(bytes(data) + b"\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)
                try:  # one connection at a time: 300 at once would be over --max-connections on a slow machine
                    while connection.recv(65536):
                        pass
                except ConnectionResetError:  # refused with some of our bytes unread
                    pass
        self.alive()


if __name__ == "__main__":
    unittest.main()
