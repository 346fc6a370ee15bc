"""test_server_scripted.py: what only a scripted engine can be made to do: exact texts, crashes at a chosen token, engines
that decline, crash or hang; and the server's own starting, stopping and limits."""
import json
import os
import re
import socket
import subprocess
import threading
import time
import unittest

from server_client import SCRIPTED, TESTS, Server, Stream, finish, join, piece

COUNT = " ".join(str(i) for i in range(1, 201))


class AnswersTest(unittest.TestCase):
    def setUp(self):
        self.server = Server()

    def tearDown(self):
        with self.server:
            pass

    def test_exact_text_and_usage(self):
        reply = self.server.complete("say:hello|")
        self.assertEqual(reply.text(), "hello")
        self.assertEqual(reply.json()["usage"], {"prompt_tokens": 10, "completion_tokens": 6, "total_tokens": 16})
        self.assertEqual(reply.choice()["finish_reason"], "stop")

    def test_characters_are_never_cut(self):
        text = "né€😀z"
        whole = self.server.complete(f"say:{text}|")
        self.assertEqual(whole.text(), text)
        streamed, reason, events = Stream(self.server, "/v1/completions", {"prompt": f"say:{text}|"}).read()
        self.assertEqual([piece(e) for e in events if piece(e)], list(text))
        # Cut by max_tokens in the middle of a character: a replacement character, not broken JSON.
        self.assertEqual(self.server.complete("say:a€|", max_tokens=2).text(), "a\ufffd")
        self.assertEqual(self.server.chat(f"say:{text}").text(), text)

    def test_stop_across_tokens_and_characters(self):
        self.assertEqual(self.server.complete("say:one€two€€three|", stop="€€").text(), "one€two")
        events = Stream(self.server, "/v1/completions", {"prompt": "say:abEND|", "stop": ["ENDS"]}).read()[2]
        self.assertEqual([piece(e) for e in events if piece(e)], ["a", "b", "END"])

    def test_logprobs_stay_with_their_text(self):
        fields = {"prompt": "say:abENDcd|", "logprobs": 1, "stop": "END"}
        reply = self.server.complete(**fields)
        self.assertEqual(reply.choice()["logprobs"]["tokens"], ["a", "b"])
        self.assertEqual(reply.choice()["logprobs"]["text_offset"], [0, 1])
        for event in Stream(self.server, "/v1/completions", dict(fields, prompt="say:a€b|", stop="x")).read()[2]:
            logprobs = event["choices"][0].get("logprobs")
            if logprobs:
                self.assertEqual(len(logprobs["tokens"]), len(piece(event).encode()))

    def test_many_logprobs(self):
        """Whole and streamed are the same, and the whole is not kept as JSON objects (17 KB a token)."""
        fields = {"messages": [{"role": "user", "content": "rand:3000"}], "logprobs": True, "top_logprobs": 20, "seed": 1}
        whole = self.server.request("POST", "/v1/chat/completions", fields).choice()["logprobs"]["content"]
        with open(f"/proc/{self.server.process.pid}/status") as file:
            peak = int(re.search(r"VmHWM:\s*(\d+) kB", file.read()).group(1)) >> 10
        self.assertEqual((len(whole), len(whole[0]["top_logprobs"])), (3000, 20))
        with open(SCRIPTED, "rb") as file:
            sanitized = b"san_init" in file.read()
        if not sanitized:  # sanitizers keep what is freed
            self.assertLess(peak, 40)
        events = Stream(self.server, "/v1/chat/completions", fields).read()[2]
        self.assertEqual([token for e in events for token in (e["choices"][0]["logprobs"] or {}).get("content", [])], whole)

    def test_request_error(self):
        reply = self.server.complete("error:3,say:hello|")
        self.assertEqual(reply.status, 500)
        self.assertIn("scripted failure", reply.error()["message"])
        events = Stream(self.server, "/v1/completions", {"prompt": "error:3,say:hello|"}).read()[2]
        self.assertEqual(join(events[:-1]), "hel")
        self.assertIn("scripted failure", events[-1]["error"]["message"])

    def test_vanished_clients_free_their_places(self):
        """Twice as many long requests as the engine holds vanish; the next one is answered within a second."""
        body = json.dumps({"prompt": "slow:20,count:2000|", "stream": True}).encode()
        for _ in range(16):
            connection = socket.create_connection(("127.0.0.1", self.server.port))
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            self.addCleanup(connection.close)
            connection.recv(10)
            connection.close()
        start = time.monotonic()
        self.assertEqual(self.server.complete("say:next|").text(), "next")
        self.assertLess(time.monotonic() - start, 1)

    def test_a_large_conversation_holds_nobody_up(self):
        """While a template takes a second, streams go on and other requests are answered."""
        stream = Stream(self.server, "/v1/completions", {"prompt": "slow:5,count:2000|", "max_tokens": 400})
        events = stream.events()
        next(events)
        slow = []
        asking = threading.Thread(target=lambda: slow.append(self.server.chat("render:1000,say:thought")))
        asking.start()
        start, worst = time.monotonic(), 0
        while time.monotonic() - start < 0.8:
            last = time.monotonic()
            next(events)
            self.assertEqual(self.server.complete([0x7C]).status, 200)
            worst = max(worst, time.monotonic() - last)
        self.assertEqual(slow, [])
        self.assertLess(worst, 0.4)
        stream.close()
        asking.join()
        self.assertEqual(slow[0].text(), "thought")

    def test_abandoned_prompts_are_not_made(self):
        body = json.dumps({"messages": [{"role": "user", "content": "render:400,say:x"}]}).encode()
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
                connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                time.sleep(0.05)
        start = time.monotonic()
        self.assertEqual(self.server.chat("say:next").text(), "next")
        self.assertLess(time.monotonic() - start, 2)  # one or two of them, not ten

    def test_strict_template(self):
        reply = self.server.request("POST", "/v1/chat/completions", {"messages": [{"role": "assistant", "content": "x"}]})
        self.assertEqual(reply.status, 400)
        self.assertIn("first message must be the user's", reply.error()["message"])

    def test_more_requests_than_places(self):
        results = []
        threads = [threading.Thread(target=lambda i=i: results.append((i, self.server.complete(f"slow:1,say:no{i}|").text())))
                   for i in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(results), [(i, f"no{i}") for i in range(40)])

    def test_slow_reader(self):
        """A client that does not read holds nobody up, and gets everything in the end."""
        slow = Stream(self.server, "/v1/completions", {"prompt": "count:800|", "logprobs": 20})
        self.assertEqual(self.server.complete("say:quick|").text(), "quick")
        text, reason, _ = slow.read()
        self.assertEqual(text, " ".join(str(i) for i in range(1, 801)))


class LostEngineTest(unittest.TestCase):
    def run_one(self, program, *options, **fields):
        with Server(*options) as server:
            stream = Stream(server, "/v1/completions", dict(prompt=f"{program},count:200|", **fields))
            text, reason, events = stream.read()
            return text, reason, events, server.restarts(), "".join(server.log)

    def test_killed_in_mid_stream(self):
        text, reason, events, restarts, log = self.run_one("die:57", stream_options={"include_usage": True})
        self.assertEqual((text, reason, restarts), (COUNT, "stop", 1))
        self.assertEqual(events[-1]["usage"]["completion_tokens"], len(COUNT) + 1)
        self.assertIn("signal 9", log)

    def test_killed_at_the_first_token(self):
        self.assertEqual(self.run_one("die:0")[:2], (COUNT, "stop"))

    def test_killed_at_the_last_token(self):
        self.assertEqual(self.run_one("die:30", max_tokens=30)[:2], (COUNT[:30], "length"))
        self.assertEqual(self.run_one("die:29", max_tokens=30)[:2], (COUNT[:30], "length"))

    def test_lost_device(self):
        text, reason, _, restarts, log = self.run_one("lost:100")
        self.assertEqual((text, reason, restarts), (COUNT, "stop", 1))
        self.assertIn("the device is lost", log)

    def test_lost_device_whose_driver_hangs_at_the_end(self):
        with Server(env={"SCRIPT_CLOSE_HANGS": "1"}) as server:
            start = time.monotonic()
            self.assertEqual(server.complete("lost:3,say:hello|").text(), "hello")
            self.assertLess(time.monotonic() - start, 30)  # not --engine-timeout, which is 120

    def test_hanging_engine(self):
        text, reason, _, restarts, log = self.run_one("stall:20", "--engine-timeout", "1")
        self.assertEqual((text, reason, restarts), (COUNT, "stop", 1))
        self.assertIn("no step for 1 s", log)

    def test_engine_that_hangs_in_loading(self):
        with Server("--engine-timeout", "1", starts=["ok", "slow 60000"]) as server:
            self.assertEqual(server.complete("die:3,say:hello|").text(), "hello")
            self.assertIn("no progress in loading for 1 s", "".join(server.log))

    def test_sampling_goes_on_with_its_seed(self):
        with Server() as server:
            whole = server.complete("rand:100|", seed=5).text()
        with Server() as server:
            self.assertEqual(len(whole), 100)
            # The program's own length moves positions: compare with the same program, its event already spent.
            first = server.complete("die:50,rand:100|", seed=5).text()
            self.assertEqual(server.restarts(), 1)
            self.assertEqual(server.complete("die:50,rand:100|", seed=5).text(), first)
            self.assertEqual(server.restarts(), 1)

    def test_deadly_request_does_not_take_the_service_down(self):
        with Server() as server:
            events = Stream(server, "/v1/completions", {"prompt": "dies:5,count:200|"}).read()[2]
            self.assertEqual(join(events[:-1]), COUNT[:5])
            self.assertEqual(events[-1]["error"]["code"], "engine_lost")
            server.wait_ready()
            self.assertEqual(server.complete("say:alive|").text(), "alive")

    def test_deadly_request_takes_no_others_along(self):
        """Requests that wait with it, in slots and in the engine's queue, are answered; it alone gets an error."""
        with Server(starts=["ok", "slow 700"]) as server:
            replies = {}

            def ask(prompt):
                replies[prompt] = server.complete(prompt)

            deadly = "slow:100,dies:0,count:200|"
            asking = [threading.Thread(target=ask, args=(p,)) for p in [deadly] + [f"say:no{i}|" for i in range(9)]]
            server.kill_engine()  # they gather, and go to the next one together, the deadly one first
            server.wait_health(503, 5)
            asking[0].start()
            time.sleep(0.1)
            for thread in asking[1:]:
                thread.start()
            for thread in asking:
                thread.join()
            self.assertEqual(replies.pop(deadly).error()["code"], "engine_lost")
            self.assertEqual({prompt: reply.text() for prompt, reply in replies.items()},
                             {f"say:no{i}|": f"no{i}" for i in range(9)})

    def test_engines_that_die_after_a_token_each(self):
        """They are not started again without a pause, and are not given up as long as the answer goes on."""
        with Server() as server:
            start = time.monotonic()
            self.assertEqual(server.complete("frail:1,say:abcde|").text(), "abcde")
            self.assertEqual(server.restarts(), 5)
            self.assertGreater(time.monotonic() - start, 0.25 + 0.5 + 1 + 2)

    def test_the_next_engine_has_the_same_context(self):
        """Also when less would fit by default now: what was taken in is still answered."""
        with Server(starts=["fits 500", "fits 30"]) as server:
            self.assertEqual(server.complete("die:57,count:100|").text(), COUNT[:291])
            self.assertEqual(server.restarts(), 1)
            meta = server.request("GET", "/v1/models").json()["data"][0]["meta"]
            self.assertEqual((meta["n_ctx"], meta["n_slot"]), (500, 4))

    def test_requests_wait_for_the_next_engine(self):
        with Server(starts=["ok", "slow 700"]) as server:
            server.kill_engine()
            server.wait_health(503, 5)
            reply = server.complete("say:patience|")
            self.assertEqual(reply.text(), "patience")

    def test_client_leaves_during_the_pause(self):
        with Server(starts=["ok", "slow 700"]) as server:
            stream = Stream(server, "/v1/completions", {"prompt": "slow:5,count:500|"})
            for _ in zip(range(5), stream.events()):
                pass
            server.kill_engine()
            server.wait_health(503, 5)
            stream.close()
            self.assertEqual(server.wait_health(200).json()["live_requests"], 0)

    def test_image_replaced_on_disk(self):
        """Another file under the image's name is not what this server's tokenizer belongs to."""
        with Server() as server:
            open(server.image, "w").write("another one")
            server.kill_engine()
            health = server.wait_health(503)
            server.wait_log("the file has changed", 20)

    def test_engine_that_does_not_come_back(self):
        with Server(starts=["ok"] + ["fail the device fell off the bus"] * 4 + ["ok"]) as server:
            stream = Stream(server, "/v1/completions", {"prompt": "slow:5,count:500|"})
            events = []
            for event in stream.events():
                events.append(event)
                if len(events) == 3:
                    server.kill_engine()
            self.assertIn("fell off the bus", events[-1]["error"]["message"])
            health = server.request("GET", "/health")
            self.assertEqual((health.status, health.json()["status"]), (503, "error"))
            self.assertIn("fell off the bus", health.error()["message"])
            reply = server.complete("say:x|")
            self.assertEqual(reply.status, 503)
            self.assertIn("fell off the bus", reply.error()["message"])
            self.assertEqual(server.request("GET", "/v1/models").status, 200)


class StartTest(unittest.TestCase):
    def exit_code(self, *options, starts=()):
        server = Server(*options, starts=starts, wait=False)
        code = server.process.wait(30)
        server.reader.join(5)
        server.folder.cleanup()
        return code, "".join(server.log)

    def test_declined(self):
        code, log = self.exit_code(starts=["decline this device lacks shaderInt8"])
        self.assertEqual(code, 3)
        self.assertIn("this device lacks shaderInt8", log)

    def test_failed(self):
        code, log = self.exit_code(starts=["fail broken image"])
        self.assertEqual(code, 1)
        self.assertIn("broken image", log)

    def test_crashing_driver(self):
        code, log = self.exit_code(starts=["crash"] * 10)
        self.assertEqual(code, 1)
        self.assertIn("signal 9", log)

    def test_one_crash_at_the_start(self):
        with Server(starts=["crash"]) as server:
            self.assertEqual(server.complete("say:x|").text(), "x")

    def test_loading(self):
        with Server(starts=["slow 1500"], wait=False) as server:
            health = server.request("GET", "/health")
            self.assertEqual((health.status, health.json()["status"]), (503, "loading"))
            self.assertEqual(server.request("GET", "/v1/models").status, 200)
            reply = server.complete("say:x|")
            self.assertEqual((reply.status, reply.error()["message"]), (503, "Loading model"))
            server.wait_ready()
            self.assertEqual(server.complete("say:x|").text(), "x")

    def test_stopped_while_loading(self):
        with Server(starts=["slow 60000"], wait=False) as server:
            start = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - start, 3)

    def test_address_in_use(self):
        with Server() as server:
            code, log = self.exit_code("--port", str(server.port))
            self.assertEqual(code, 1)
            self.assertIn("Address already in use", log)
            self.assertIn("--port", log)

    def test_usage(self):
        for arguments, code in ((["--prot", "1", "x.img"], 2), ([], 2), (["x.img", "--host", "256.1.1.1"], 1)):
            done = subprocess.run([SCRIPTED, *arguments], stderr=subprocess.PIPE, timeout=20)
            self.assertEqual(done.returncode, code, done.stderr)
        done = subprocess.run([SCRIPTED, "engine", "x.img"], stderr=subprocess.PIPE, timeout=20)
        self.assertEqual(done.returncode, 2)

    def test_sandbox(self):
        """The engine can open no socket and start no program; what works before loading does not work after it."""
        with Server() as server:
            if "without a sandbox" in "".join(server.log):
                self.skipTest("no seccomp here")
            reply = server.complete("escape:1|")
            self.assertEqual(reply.text(), "socket: Operation not permitted; exec: Operation not permitted")

    def test_front_gone(self):
        """The engine does not outlive a front that was killed."""
        server = Server()
        engine = server.engine_pid()
        server.process.kill()
        server.process.wait()
        for _ in range(200):
            if not os.path.exists(f"/proc/{engine}") or b"Z" in open(f"/proc/{engine}/stat", "rb").read().split()[2:3]:
                break
            time.sleep(0.01)
        else:
            self.fail("the engine lives on")
        server.reader.join(5)
        server.folder.cleanup()

    def test_privileges_and_descriptors(self):
        with Server() as server:
            for pid in (server.process.pid, server.engine_pid()):
                with open(f"/proc/{pid}/status") as file:
                    self.assertIn("NoNewPrivs:\t1", file.read())
            with open(f"/proc/{server.engine_pid()}/status") as file:
                if "without a sandbox" not in "".join(server.log):
                    self.assertIn("Seccomp:\t2", file.read())
            links = [os.readlink(f"/proc/{server.engine_pid()}/fd/{fd}") for fd in os.listdir(f"/proc/{server.engine_pid()}/fd")]
            sockets = [link for link in links if link.startswith("socket:")]
            self.assertEqual(len(sockets), 1, links)  # the one to the front


class StopTest(unittest.TestCase):
    def test_live_requests_finish(self):
        server = Server()
        stream = Stream(server, "/v1/completions", {"prompt": "slow:5,count:40|"})
        events = stream.events()
        next(events)
        server.process.terminate()
        server.wait_log("SIGTERM", 5)
        with self.assertRaises(OSError):
            socket.create_connection(("127.0.0.1", server.port), timeout=1)
        rest = list(events)
        self.assertEqual(finish(rest), "stop")
        self.assertEqual(server.stop(), 0)

    def test_prompts_in_the_making_finish(self):
        server = Server()
        replies = []
        asking = threading.Thread(target=lambda: replies.append(server.chat("render:600,say:hello")))
        asking.start()
        time.sleep(0.2)
        self.assertEqual(server.stop(), 0)
        asking.join()
        self.assertEqual(replies[0].text(), "hello")

    def test_grace_ends(self):
        server = Server("--shutdown-grace", "1")
        stream = Stream(server, "/v1/completions", {"prompt": "slow:20,count:2000|"})
        events = stream.events()
        next(events)
        start = time.monotonic()
        server.process.terminate()
        rest = list(events)
        self.assertIn("shutting down", rest[-1]["error"]["message"])
        self.assertEqual(server.stop(), 0)
        self.assertLess(time.monotonic() - start, 4)


    def test_stopped_between_two_engines(self):
        server = Server("--shutdown-grace", "0", starts=["ok", "crash", "crash", "crash"])
        stream = Stream(server, "/v1/completions", {"prompt": "slow:20,count:2000|"})
        events = stream.events()
        next(events)
        server.kill_engine()
        server.wait_log(r"(?s)(engine is lost.*){4}", 20)  # the next one is started in a second
        server.process.terminate()
        self.assertIn("shutting down", list(events)[-1]["error"]["message"])
        self.assertEqual(server.stop(), 0)


class LimitsTest(unittest.TestCase):
    def test_api_keys(self):
        with open("/dev/shm/moert-test-keys", "w") as file:
            file.write("# keys\n\n  first-key  \nsecond\n")
        self.addCleanup(os.unlink, "/dev/shm/moert-test-keys")
        with Server("--api-key-file", "/dev/shm/moert-test-keys") as server:
            self.assertEqual(server.request("GET", "/health").status, 200)
            for headers in ({}, {"Authorization": "first-key"}, {"Authorization": "Bearer "}, {"Authorization": "Bearer first-kez"},
                            {"Authorization": "Bearer first-key2"}, {"Authorization": "Bearer # keys"},
                            {"Authorization": "Bearer " + "x" * 5000}):
                for method, path in (("GET", "/v1/models"), ("POST", "/v1/completions")):
                    reply = server.request(method, path, headers=headers)
                    self.assertEqual(reply.status, 401, headers)
                    self.assertEqual(reply.error()["code"], "invalid_api_key")
            for key in ("first-key", "second"):
                headers = {"Authorization": f"Bearer {key}"}
                self.assertEqual(server.request("GET", "/v1/models", headers=headers).status, 200)
                self.assertEqual(server.request("POST", "/v1/completions", {"prompt": "say:x|"}, headers).text(), "x")

    def test_broken_key_files(self):
        for text, words in (("\n# only a comment\n", "no API key"), ("x" * 300, "bytes"), (None, "cannot read"),
                            ("# " + "x" * 1100 + "\nkey\n", "line 1: longer than 1022 bytes")):
            path = "/dev/shm/moert-test-broken-keys"
            if text is None:
                os.unlink(path)
            else:
                with open(path, "w") as file:
                    file.write(text)
            done = subprocess.run([SCRIPTED, "x.img", "--port", "0", "--api-key-file", path], stderr=subprocess.PIPE, timeout=20)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr.decode())

    def test_connections(self):
        with Server("--max-connections", "4") as server:
            idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
            time.sleep(0.2)
            reply = server.request("GET", "/health")
            self.assertEqual(reply.status, 503)
            self.assertIn("too many connections", reply.error()["message"])
            for connection in idle:
                connection.close()
            server.wait_health(200, 5)

    def test_a_fast_engine_does_not_starve_the_sockets(self):
        """An engine faster than the front keeps its ring full: other connections still have their turns."""
        with Server("--slots", "24") as server:
            fields = {"messages": [{"role": "user", "content": "rand:500"}], "max_tokens": 500, "stream": True,
                      "logprobs": True, "top_logprobs": 20}
            replies = []
            clients = [threading.Thread(target=lambda: replies.append(
                server.request("POST", "/v1/chat/completions", fields).status)) for _ in range(24)]
            start, worst = time.monotonic(), 0
            for client in clients:
                client.start()
            while any(client.is_alive() for client in clients):
                asked = time.monotonic()
                server.request("GET", "/health")
                worst = max(worst, time.monotonic() - asked)
                time.sleep(0.01)
            self.assertEqual(replies, [200] * 24)
            self.assertLess(worst, (time.monotonic() - start) / 2)

    def test_body_limit(self):
        with Server("--max-body", "2000") as server:
            self.assertEqual(server.complete("x" * 3000).status, 413)
            self.assertEqual(server.complete("say:ok|").text(), "ok")

    def test_many_messages(self):
        with Server() as server:
            for n, status in ((4096, 200), (4097, 400)):
                messages = [{"role": "user", "content": "say:ok"}] * n
                reply = server.request("POST", "/v1/chat/completions", {"messages": messages})
                self.assertEqual(reply.status, status)
            self.assertIn("messages: found 4097 messages, allowed: at most 4096", reply.error()["message"])

    def test_long_prompt(self):
        """A prompt of many packets, and its replay."""
        with Server("--ctx", "300000") as server:
            prompt = list(b"die:3,say:hello|") + [0x20] * 0
            reply = server.request("POST", "/v1/completions", {"prompt": [0x41] * 200000 + [0x7C], "max_tokens": 1})
            self.assertEqual(reply.status, 200)
            self.assertEqual(reply.json()["usage"]["prompt_tokens"], 200001)
            self.assertEqual(server.request("POST", "/v1/completions", {"prompt": prompt}).text(), "hello")

    def test_context(self):
        with Server("--ctx", "20") as server:
            reply = server.complete("count:9|")
            self.assertEqual((reply.text(), reply.choice()["finish_reason"]), ("1 2 3 4 5 6 ", "length"))
            reply = server.complete("x" * 20)
            self.assertEqual(reply.error()["code"], "context_length_exceeded")
            self.assertIn("found more than 19 tokens, allowed: at most 19", reply.error()["message"])


class DocumentTest(unittest.TestCase):
    def test_api_md_holds_the_tables(self):
        with open(os.path.join(TESTS, "..", "runtime", "API.md")) as file:
            text = file.read()
        tables = subprocess.run([SCRIPTED, "--markdown"], stdout=subprocess.PIPE, check=True, text=True).stdout
        for line in tables.splitlines():
            self.assertIn(line, text, "runtime/API.md is behind serve_options.def or front_params.def")


if __name__ == "__main__":
    unittest.main()
