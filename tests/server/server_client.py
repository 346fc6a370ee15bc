"""server_client.py: starts moert for a test, and talks HTTP with it.

Owns: the server's process, one connection's bytes, server-sent events. Two kinds of server:
  scripted  scripted_moert (scripted_engine.c): no device, the prompt says what happens
  real      moert with the embedded model's image, on whatever Vulkan device there is
SERVER_KIND=real chooses the second; test_server_real.py sets it and runs test_server.py's tests again.
"""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

TESTS = os.environ.get("TESTS_DIR", os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD_DIR", os.path.join(os.path.dirname(TESTS), "build"))
SCRIPTED = os.environ.get("SCRIPTED_MOERT", os.path.join(BUILD, "scripted_moert"))
MOERT = os.environ.get("MOERT", os.path.join(BUILD, "moert"))
MOEC = os.environ.get("MOEC", os.path.join(BUILD, "moec"))
REAL = os.environ.get("SERVER_KIND", "scripted") == "real"


def real_image(model=os.path.join(TESTS, "models", "wordnet-moe.gguf")):
    """A model's image, by default the embedded one's, compiled once a build."""
    folder = os.path.join(BUILD, "tests-server")
    path = os.path.join(folder, os.path.basename(model).replace(".gguf", ".img"))
    os.makedirs(folder, exist_ok=True)
    newest = max(os.path.getmtime(model), os.path.getmtime(MOEC))
    if not os.path.exists(path) or os.path.getmtime(path) < newest:
        subprocess.run([MOEC, model, "-o", path, "-q"], check=True, timeout=250)
    return path


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


class Server:
    """A running moert. `starts`: the scripted engine's fates, one line each start (scripted_engine.c). image: another than the embedded model's."""

    def __init__(self, *options, starts=(), wait=True, env=None, image=None):
        self.folder = tempfile.TemporaryDirectory()
        self.starts = os.path.join(self.folder.name, "starts")
        with open(self.starts, "w") as file:
            file.write("".join(line + "\n" for line in starts))
        self.image = image or real_image() if REAL else os.path.join(self.folder.name, "scripted.img")
        if not REAL:
            open(self.image, "w").close()
        command = [MOERT if REAL else SCRIPTED, self.image]
        if REAL:
            options = ("--ctx", "256") + options
        environment = dict(os.environ, SCRIPT_STARTS=self.starts, SCRIPT_ONCE=os.path.join(self.folder.name, "once"))
        environment.update(env or {})
        self.process = subprocess.Popen(command + ["--port", "0", *options], stderr=subprocess.PIPE,
                                        stdout=subprocess.DEVNULL, env=environment, text=True, errors="replace")
        self.log = []
        self.log_changed = threading.Condition()
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()
        found = self.wait_log(r"listening on http://[^ ]*:(\d+)", 60, or_end=True)
        self.port = int(found.group(1)) if found else None
        if wait:
            self.wait_ready()

    def _read_log(self):
        for line in self.process.stderr:
            with self.log_changed:
                self.log.append(line)
                self.log_changed.notify_all()
        with self.log_changed:
            self.log.append("(end)\n")
            self.log_changed.notify_all()

    def wait_log(self, pattern, seconds, or_end=False):
        """The match of a pattern in the log, once it is there."""
        end = time.monotonic() + seconds
        with self.log_changed:
            while True:
                found = re.search(pattern, "".join(self.log))
                if found or (or_end and self.log and self.log[-1] == "(end)\n"):
                    return found
                left = end - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"the log lacks {pattern!r}:\n" + "".join(self.log))
                self.log_changed.wait(left)

    def wait_ready(self, seconds=120):
        self.wait_health(200, seconds)

    def wait_health(self, status, seconds=30):
        end = time.monotonic() + seconds
        while True:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n" + "".join(self.log))
            reply = self.request("GET", "/health")
            if reply.status == status:
                return reply
            if time.monotonic() > end:
                raise AssertionError(f"/health stays at {reply.status} {reply.body!r}:\n" + "".join(self.log))
            time.sleep(0.02)

    def engine_pid(self):
        pids = children(self.process.pid)
        return pids[0] if pids else None

    def kill_engine(self):
        os.kill(self.engine_pid(), signal.SIGKILL)

    def restarts(self):
        return self.request("GET", "/health").json().get("engine_restarts")

    def request(self, method, path, body=None, headers=None, timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Reply(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def complete(self, prompt, **fields):
        return self.request("POST", "/v1/completions", dict(prompt=prompt, **fields))

    def chat(self, content, **fields):
        return self.request("POST", "/v1/chat/completions", dict(messages=[{"role": "user", "content": content}], **fields))

    def stream(self, path, body, headers=None):
        return Stream(self, path, body, headers)

    def raw(self, data, timeout=10, half_close=False):
        """Sends bytes, returns all that comes back until the server closes or nothing comes for `timeout`."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            try:
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # refused before everything was sent; the answer counts
            received = b""
            while True:
                try:
                    piece = connection.recv(65536)
                except (socket.timeout, ConnectionResetError):
                    return received
                if not piece:
                    return received
                received += piece

    def stop(self, seconds=20):
        """Asks the server to end; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("the server did not end:\n" + "".join(self.log))
        finally:
            self.reader.join(5)
            self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        code = self.stop()
        text = "".join(self.log)
        if "Sanitizer" in text or "runtime error" in text:
            raise AssertionError("the sanitizers complain:\n" + text)
        if code != 0 and exception[0] is None:
            raise AssertionError(f"the server ended with {code}:\n" + text)


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def error(self):
        return self.json()["error"]

    def choice(self):
        assert self.status == 200, (self.status, self.body)
        return self.json()["choices"][0]

    def text(self):
        choice = self.choice()
        return choice["text"] if "text" in choice else choice["message"]["content"]


class Stream:
    """A streamed answer, read event by event."""

    def __init__(self, server, path, body, headers=None):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.connection.request("POST", path, json.dumps(dict(body, stream=True)), headers or {})
        self.response = self.connection.getresponse()
        self.status = self.response.status
        self.done = False

    def events(self):
        for line in self.response:
            line = line.decode("utf-8")  # strict: no character is ever cut
            if not line.startswith("data: "):
                assert line == "\n", line
                continue
            if line == "data: [DONE]\n":
                self.done = True
                continue
            yield json.loads(line[6:])

    def read(self):
        """All of it: (text, finish_reason, events)."""
        events = list(self.events())
        self.close()
        return join(events), finish(events), events

    def close(self):
        """Closes the connection, in the middle of the answer or after it."""
        if self.connection.sock:
            self.connection.sock.close()
        self.response.close()
        self.connection.close()


def piece(event):
    choices = event.get("choices") or [{}]
    return choices[0].get("text") or choices[0].get("delta", {}).get("content") or ""


def join(events):
    return "".join(piece(event) for event in events)


def finish(events):
    reasons = [e["choices"][0]["finish_reason"] for e in events if e.get("choices")]
    return reasons[-1] if reasons else None
